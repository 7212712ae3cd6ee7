"""Calls between DeepSeek's special tokens: the dialects deepseekv3 and deepseekv31.

    <｜tool▁calls▁begin｜> CALL CALL ... <｜tool▁calls▁end｜>
    v3    CALL = <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
                 ```json
                 {...}
                 ```<｜tool▁call▁end｜>
    v3.1  CALL = <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>

One parser reads both: what stands after the separator tells them apart.
"""

from __future__ import annotations

from .calls import CallParser
from .feed import Steps
from .json_text import MAX_NAME_CHARS, Malformed, read_object

CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_FENCE = "```"


class DeepSeekParser(CallParser):
    """Text after the block is content again."""

    def _run(self) -> Steps[None]:
        feed = self._feed
        while True:
            feed.mark()
            space, marker = yield from self._until((CALLS_BEGIN, CALL_BEGIN))
            if not marker:
                return
            inner = feed.position
            if marker == CALLS_BEGIN:
                yield from feed.skip_space()
                yield from feed.starts((CALL_BEGIN,))
            before = self._num_calls
            yield from self._call()
            if self._num_calls == before:
                feed.rewind(inner)
                self._content(space + marker)
            else:
                yield from self._rest_of_block()

    def _rest_of_block(self) -> Steps[None]:
        """Further calls, up to the end of the block; what is neither is content."""
        feed = self._feed
        while True:
            feed.mark()
            space, marker = yield from self._until((CALL_END, CALL_BEGIN, CALLS_END), in_block=True)
            if marker == CALL_BEGIN:
                inner, before = feed.position, self._num_calls
                yield from self._call()
                if self._num_calls == before:
                    feed.rewind(inner)
                    self._content(space + marker)
            elif marker != CALL_END:
                yield from feed.skip_space()
                return

    def _call(self) -> Steps[None]:
        """From after its marker to the end of its arguments; opens nothing if it is none."""
        feed = self._feed
        try:
            name = yield from self._name()
        except Malformed:
            return
        self._start_call(name)
        if (yield from read_object(feed, self._arguments)):
            yield from feed.skip_space()
            yield from feed.starts((_FENCE,))

    def _name(self) -> Steps[str]:
        """Up to the beginning of the arguments. Raises Malformed."""
        feed = self._feed
        head = yield from feed.until((SEPARATOR,), MAX_NAME_CHARS)
        if head is None:
            raise Malformed
        yield from feed.skip_space()
        name = head[0].strip()
        if (yield from feed.peek()) != "{":
            line = yield from feed.until(("\n",), MAX_NAME_CHARS)
            if line is None:
                raise Malformed
            name = line[0].strip()
            yield from feed.skip_space()
            yield from feed.starts((_FENCE + "json", _FENCE))
            yield from feed.skip_space()
        if not name or "<" in name or (yield from feed.peek()) != "{":
            raise Malformed
        return name
