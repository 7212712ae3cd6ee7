"""DeepSeek's markup: the dialects deepseekv41, deepseekv4 and deepseekv32.

    \\n\\n<｜DSML｜ calls>
    <｜DSML｜ invoke name="f">
    <｜DSML｜ parameter name="a" string="true">text as it is</｜DSML｜ parameter>
    <｜DSML｜ parameter name="b" string="false">[1, 2]</｜DSML｜ parameter>
    </｜DSML｜ invoke>
    </｜DSML｜ calls>

Version 4 writes no space after the mark and `tool_calls` for the block, 3.2 `function_calls`; all
are read alike. Parameters become one JSON object in their order. A value with string="true" is
passed on as it comes; any other is JSON, and is taken for a string when it is not. The two line
breaks before a block are no content, and what follows a complete block is dropped, as the model's
own encoder does.
"""

from __future__ import annotations

import json
import re

from ..plain_json import plain_json
from .calls import CallParser
from .feed import Steps, find_first, held_back

MARK = "｜DSML｜"
_BLOCKS = ("calls", "tool_calls", "function_calls")
_OPEN = tuple(f"<{MARK}{gap}{name}>" for gap in (" ", "") for name in _BLOCKS)
_BEGIN = (*(f"\n\n{tag}" for tag in _OPEN), *_OPEN)
_END = tuple(f"</{tag[1:]}" for tag in _OPEN)
_INVOKE = tuple(f"<{MARK}{gap}invoke" for gap in (" ", ""))
_INVOKE_END = tuple(f"</{MARK}{gap}invoke>" for gap in (" ", ""))
_PARAMETER = tuple(f"<{MARK}{gap}parameter" for gap in (" ", ""))
_PARAMETER_END = tuple(f"</{MARK}{gap}parameter>" for gap in (" ", ""))
_ATTRIBUTE = re.compile(r'\s+(\w+)="([^"]*)"')
MAX_TAG_CHARS = 512


class DsmlParser(CallParser):
    def _run(self) -> Steps[None]:
        feed = self._feed
        while True:
            feed.mark()
            marker = yield from self._content_until_block()
            if not marker:
                return
            inner, before = feed.position, self._num_calls
            is_complete = yield from self._block()
            if self._num_calls == before:
                feed.rewind(inner)
                self._content(marker)
            elif is_complete:
                break
        while (yield from feed.peek()):
            feed.take(len(feed.unread))
            feed.mark()

    def _content_until_block(self) -> Steps[str]:
        feed = self._feed
        while True:
            end, marker = find_first(feed.unread, _BEGIN)
            if not marker and not feed.is_ended:
                end -= held_back(feed.unread, _BEGIN)
            self._content(feed.take(end))
            if marker or feed.is_ended:
                return feed.take(len(marker))
            feed.mark()
            yield

    def _block(self) -> Steps[bool]:
        """Whether the block came to its end. What breaks off is left unread."""
        feed = self._feed
        while True:
            start = feed.position
            yield from feed.skip_space()
            if (yield from feed.starts(_END)):
                return True
            attributes = yield from self._tag(_INVOKE)
            name = (attributes or {}).get("name", "")
            if not name:
                if self._is_cut_off():
                    return True
                feed.rewind(start)
                return False
            self._start_call(name)
            yield from self._parameters()
            feed.mark()

    def _is_cut_off(self) -> bool:
        """The text ends within a tag that was due, after a call: it is no content."""
        feed = self._feed
        return bool(self._num_calls) and feed.is_ended and _is_begun(feed.unread.lstrip())

    def _parameters(self) -> Steps[None]:
        """The inside of a call and its end tag."""
        feed = self._feed
        before = "{"
        while True:
            start = feed.mark()
            yield from feed.skip_space()
            if (yield from feed.starts(_INVOKE_END)):
                self._arguments("{}" if before == "{" else "}")
                return
            attributes = yield from self._tag(_PARAMETER)
            if attributes is None or "name" not in attributes:
                if (yield from feed.starts((*_END, *_INVOKE))):  # the end tag was forgotten
                    self._arguments("{}" if before == "{" else "}")
                feed.rewind(start)
                if self._is_cut_off():
                    feed.take(len(feed.unread))
                return
            self._arguments(f"{before}{plain_json(attributes['name'])}: ")
            before = ", "
            if not (yield from self._value(is_text=attributes.get("string") == "true")):
                return

    def _value(self, *, is_text: bool) -> Steps[bool]:
        """A parameter's value and its end tag. False: the text ended before."""
        feed = self._feed
        if is_text:
            self._arguments('"')
        while True:
            unread = feed.unread
            end, tag = find_first(unread, _PARAMETER_END)
            if not tag:
                end -= held_back(unread, _PARAMETER_END)
            if is_text:
                self._arguments(plain_json(feed.take(end))[1:-1])
            if tag:
                self._arguments('"' if is_text else _json_or_string(feed.take(end)))
                feed.take(len(tag))
                return True
            if feed.is_ended:
                self._arguments("" if is_text else feed.take(end))
                feed.take(len(feed.unread))
                return False
            feed.mark()
            yield

    def _tag(self, names: tuple[str, ...]) -> Steps[dict[str, str] | None]:
        """The attributes of the tag that begins here; None, and nothing read, when it is none."""
        feed = self._feed
        start = feed.position
        if (yield from feed.starts(names)):
            inside = yield from feed.until((">",), MAX_TAG_CHARS)
            if inside is not None:
                return dict(_ATTRIBUTE.findall(inside[0]))
        feed.rewind(start)
        return None


def _is_begun(text: str) -> bool:
    return any(
        tag.startswith(text) or text.startswith(tag)
        for tag in (*_END, *_INVOKE, *_INVOKE_END, *_PARAMETER)
    )


def _json_or_string(text: str) -> str:
    """`text` if it is JSON, to the letter; else a JSON string of it."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return plain_json(text)
    return text.strip()


def _refuse(word: str) -> None:
    raise ValueError(word)
