"""Splits what a model says into reasoning and the rest, and the table of formats.

    [<think>] reasoning </think> content

Owns where reasoning begins and ends; tool calls in the content are parsed after it. Where the text
begins is told by the end of the prompt: a template that opens or closes the thinking itself
decides, otherwise the format's `is_forced` does. Without an end tag all of it is reasoning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .events import Reasoning
from .feed import OutputParser, Steps, find_first, held_back

TAIL_TOKENS = 16  # of a prompt: enough for an opened or a closed empty thinking and line breaks
_BEGIN, _END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """`is_forced`: the text begins inside the reasoning even when nothing says so.
    `trims_lines`: line breaks next to the tags belong to the tags, as the model's template writes
    them. `interrupts` end the reasoning too, and belong to the content. `drops_stray_end`: an end
    tag in the content is no content.
    """

    name: str
    is_forced: bool = False
    trims_lines: bool = True
    drops_stray_end: bool = False
    interrupts: tuple[str, ...] = ()
    begin: str = _BEGIN
    end: str = _END

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that must reach the parser even when special tokens are hidden."""
        return (self.begin, self.end, *self.interrupts)


_DSML = ("\n\n<｜DSML｜", "<｜DSML｜")


def _deepseek_v4(name: str) -> ReasoningFormat:
    return ReasoningFormat(name, trims_lines=False, drops_stray_end=True, interrupts=_DSML)


FORMATS = {
    form.name: form
    for form in (
        ReasoningFormat("deepseek-r1", is_forced=True),
        ReasoningFormat("deepseek-v3"),
        _deepseek_v4("deepseek-v4"),
        _deepseek_v4("deepseek-v41"),
        ReasoningFormat("qwen3"),
        ReasoningFormat("qwen3-thinking", is_forced=True),
    )
}


def opened_by(form: ReasoningFormat, tail: str) -> bool | None:
    """Whether the end of a prompt opened the reasoning (True), closed it, or says nothing."""
    tail = tail.rstrip()
    if tail.endswith(form.begin):
        return True
    return False if tail.endswith(form.end) else None


class ReasoningParser(OutputParser):
    """`is_open`: what `opened_by` says. Emits Reasoning and Content."""

    def __init__(self, form: ReasoningFormat, *, is_open: bool | None = None) -> None:
        self._form = form
        self._is_open = is_open
        self.has_reasoned = False  # the text is, or was, inside the reasoning
        self.is_settled = False  # whatever comes is content
        super().__init__()

    def _run(self) -> Steps[None]:
        if self._is_open is not False:
            yield from self._reason()
        self.is_settled = True
        yield from self._rest()

    def _reason(self) -> Steps[None]:
        form, feed = self._form, self._feed
        start = feed.mark()
        yield from feed.skip_space()
        if not (yield from feed.starts((form.begin,))):
            feed.rewind(start)
            if not (self._is_open or (self._is_open is None and form.is_forced)):
                return
        self.has_reasoned = True
        if form.trims_lines:
            yield from self._skip_lines()
        found = yield from self._until((form.end, *form.interrupts))
        if found == form.end:
            self.is_settled = True
            feed.take(len(found))
            if form.trims_lines:
                yield from self._skip_lines()

    def _skip_lines(self) -> Steps[None]:
        while (yield from self._feed.peek()) == "\n":
            self._feed.take(1)

    def _until(self, words: Sequence[str]) -> Steps[str]:
        """Emits the reasoning before the first of `words`, which is left unread."""
        feed = self._feed
        while True:
            unread = feed.unread
            end, word = find_first(unread, words)
            if not word and not feed.is_ended:
                end = len(unread) - held_back(unread, words)
            cut = len(unread[:end].rstrip("\n")) if self._form.trims_lines else end
            if cut:
                self._events.append(Reasoning(feed.take(cut)))
            if word or feed.is_ended:
                feed.take(end - cut)
                return word
            feed.mark()
            yield

    def _rest(self) -> Steps[None]:
        feed = self._feed
        stray = (self._form.end,) if self._form.drops_stray_end else ()
        while True:
            unread = feed.unread
            start, word = find_first(unread, stray)
            if not word and not feed.is_ended:
                start -= held_back(unread, stray)
            self._content(feed.take(start))
            feed.take(len(word))
            feed.mark()
            if not feed.unread and feed.is_ended:
                return
            if not word:
                yield
