"""Base of the tool-call parsers: content up to a marker, and the bookkeeping of calls.

What every dialect does alike: a call is *opened* once its name is complete and its arguments have
begun. Text that looks like a call but breaks before that is content, so nothing is lost. From then
on the call stands: its arguments are delivered as written, and are incomplete JSON when the output
ends inside them, so that no half of a call is ever taken for a whole one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .events import ToolArguments, ToolStart
from .feed import OutputParser, Steps, find_first, held_back


class CallParser(OutputParser):
    """`known` are the names of the request's tools. Formats with markers deliver calls of other
    names too (the client answers its model best); where nothing but a name tells a call from
    content, it has to be known.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._num_calls = 0
        super().__init__()

    def _start_call(self, name: str) -> None:
        self._events.append(ToolStart(self._num_calls, name))
        self._num_calls += 1

    def _arguments(self, text: str) -> None:
        """Goes on the arguments of the call opened last."""
        if text:
            self._events.append(ToolArguments(self._num_calls - 1, text))

    def _until(self, markers: Sequence[str], *, in_block: bool = False) -> Steps[tuple[str, str]]:
        """Emits the content before the first marker. (white space before it, which is content only
        if no call follows; the marker), both read; marker "" at the end of the text. `in_block`:
        one of the markers is due, so the beginning of one at the end of the text is no content.
        """
        feed = self._feed
        while True:
            unread = feed.unread
            end, marker = find_first(unread, markers)
            if not marker and feed.is_ended and not in_block:
                self._content(feed.take(end))
                return "", ""
            if not marker:
                end -= held_back(unread, markers)
            cut = len(unread[:end].rstrip())
            self._content(feed.take(cut))
            if marker or feed.is_ended:
                space = feed.take(end - cut)
                feed.take(len(marker) if marker else len(unread))
                return space, marker
            feed.mark()
            yield
