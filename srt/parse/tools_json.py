"""Calls as JSON objects: the dialects hermes (also qwen25) and llama3.

    hermes   text <tool_call>{"name": "f", "arguments": {...}}</tool_call> text
    llama3   <|python_tag|>{"name": "f", "parameters": {...}}; {"name": ...}
             or the objects alone, from the first character on

Keys may come in any order, `arguments` and `parameters` mean the same, and arguments may be JSON
text in a string. Objects of a block may follow one another.
"""

from __future__ import annotations

from dataclasses import dataclass

from .calls import CallParser
from .feed import Steps
from .json_text import (
    MAX_NAME_CHARS,
    Malformed,
    read_key,
    read_object,
    read_scalar,
    read_string,
    skip_value,
)

_ARGUMENTS = ("arguments", "parameters")
_OTHERS = ("type", "id", "index")  # keys that some models add to a call
MAX_ARGUMENT_CHARS = 1 << 22  # of arguments that come in a string: read before they are passed on


@dataclass(slots=True, eq=False)
class _Head:
    """What is known of a call; `early` are arguments that came before the name."""

    name: str = ""
    early: str = ""
    is_open: bool = False


class JsonCallParser(CallParser):
    """Reads one call object; the dialects are where such objects stand."""

    def _call(self, *, is_marked: bool) -> Steps[bool]:
        """Reads the object that begins here. False, and nothing read, when it is no call."""
        feed = self._feed
        start, before = feed.position, self._num_calls
        try:
            yield from self._object(is_marked=is_marked)
        except Malformed:
            if self._num_calls == before:
                feed.rewind(start)
        return self._num_calls > before

    def _object(self, *, is_marked: bool) -> Steps[None]:
        """Raises Malformed; if a call was opened by then, it stands."""
        feed, head = self._feed, _Head()
        if not (yield from feed.starts(("{",))):
            raise Malformed
        while True:
            yield from self._member(head, is_marked=is_marked)
            yield from feed.skip_space()
            if not (yield from feed.starts((",",))):
                break
        if not (yield from feed.starts(("}",))):
            raise Malformed
        if not head.is_open:
            if not head.name or not is_marked:
                raise Malformed
            self._start_call(head.name)
            self._arguments("{}")

    def _member(self, head: _Head, *, is_marked: bool) -> Steps[None]:
        key = yield from read_key(self._feed)
        if key == "name" and not head.is_open:
            head.name = yield from self._name(is_marked=is_marked)
        elif key in _ARGUMENTS and head.name and not head.is_open:
            head.is_open = True
            yield from self._open(head.name)
        elif key in _ARGUMENTS and not head.is_open:
            head.early = yield from self._early()
        elif head.is_open or is_marked or key in _OTHERS:
            yield from skip_value(self._feed, lambda _: None)
        else:
            raise Malformed
        if head.name and head.early and not head.is_open:
            head.is_open = True
            self._start_call(head.name)
            self._arguments(head.early)

    def _name(self, *, is_marked: bool) -> Steps[str]:
        name = yield from read_string(self._feed, MAX_NAME_CHARS)
        if not name or not (is_marked or name in self._known):
            raise Malformed
        return name

    def _open(self, name: str) -> Steps[None]:
        """The arguments of a call whose name is known, passed on as they come."""
        feed = self._feed
        if (yield from feed.peek()) != "{":
            text = yield from self._unusual()
            self._start_call(name)
            self._arguments(text)
            return
        self._start_call(name)
        if not (yield from read_object(feed, self._arguments)):
            raise Malformed

    def _early(self) -> Steps[str]:
        """Arguments that come before the name."""
        if (yield from self._feed.peek()) != "{":
            return (yield from self._unusual())
        start = self._feed.position
        if not (yield from read_object(self._feed, lambda _: None)):
            raise Malformed
        return self._feed.since(start)

    def _unusual(self) -> Steps[str]:
        """Arguments that are not an object: JSON text in a string, or null for none."""
        if (yield from self._feed.peek()) == '"':
            return (yield from read_string(self._feed, MAX_ARGUMENT_CHARS)) or "{}"
        if (yield from read_scalar(self._feed)) != "null":
            raise Malformed
        return "{}"


class HermesParser(JsonCallParser):
    """Text after a block is content again."""

    BEGIN, END = "<tool_call>", "</tool_call>"

    def _run(self) -> Steps[None]:
        feed = self._feed
        while True:
            feed.mark()
            space, marker = yield from self._until((self.BEGIN,))
            if not marker:
                return
            inner = feed.position
            yield from feed.skip_space()
            if not (yield from self._call(is_marked=True)):
                feed.rewind(inner)
                self._content(space + marker)
                continue
            yield from self._rest_of_block()

    def _rest_of_block(self) -> Steps[None]:
        """Further objects, and up to the end marker; what is neither is content."""
        feed = self._feed
        while True:
            feed.mark()
            yield from feed.skip_space()
            if (yield from feed.peek()) != "{" or not (yield from self._call(is_marked=True)):
                break
        _, marker = yield from self._until((self.END, self.BEGIN), in_block=True)
        if marker == self.BEGIN:  # the end marker was forgotten
            feed.rewind(feed.position - len(marker))
        else:
            yield from feed.skip_space()


class Llama3Parser(JsonCallParser):
    """Objects after the tag, wherever it stands, or from the start. Bare ones name a known tool."""

    TAG = "<|python_tag|>"

    def _run(self) -> Steps[None]:
        feed = self._feed
        start = feed.mark()
        yield from feed.skip_space()
        if (yield from feed.peek()) != "{" or not (yield from self._calls(is_marked=False)):
            feed.rewind(start)
        while True:
            feed.mark()
            space, marker = yield from self._until((self.TAG,))
            if not marker:
                return
            inner = feed.position
            yield from feed.skip_space()
            if not (yield from self._calls(is_marked=True)):
                feed.rewind(inner)
                self._content(space + marker)

    def _calls(self, *, is_marked: bool) -> Steps[bool]:
        """Calls one after the other, and the space and semicolons between. False: there is none."""
        feed = self._feed
        if not (yield from self._call(is_marked=is_marked)):
            return False
        while True:
            start = feed.mark()
            yield from feed.skip_space()
            if (yield from feed.starts((";",))):
                yield from feed.skip_space()
            elif (yield from feed.peek()) != "{":
                return True
            if not (yield from feed.peek()):
                return True
            if not (yield from self._call(is_marked=is_marked)):
                feed.rewind(start)
                return True
