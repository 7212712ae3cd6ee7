"""Calls as a list of Python calls: the dialect pythonic.

    [get_weather(city="Paris"), add(a=1, b=[2, 3.5])]

No marker tells such a list from content, so the first call has to name a tool of the request. A
call is passed on when it is complete, with its arguments as JSON; a name in front of a value that
is no Python literal makes the call content. `<|python_start|>` and `<|python_end|>` around a list
are no content.
"""

from __future__ import annotations

import ast
import json
import re
import warnings

from .calls import CallParser
from .feed import Steps
from .json_text import MAX_NAME_CHARS

_BEGIN, _END = "<|python_start|>", "<|python_end|>"
_NAME = re.compile(r"[A-Za-z_][\w.:-]*")
_OUTSIDE = re.compile(r"[\"'()\[\]{}]")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_NAMES = {"true": True, "false": False, "null": None}  # JSON's words, which models mix in


class PythonicParser(CallParser):
    TAGS = (_BEGIN, _END)

    def _run(self) -> Steps[None]:
        feed = self._feed
        while True:
            feed.mark()
            space, marker = yield from self._until((_BEGIN, _END, "["))
            if not marker:
                return
            if marker == _END:
                continue
            inner, before = feed.position, self._num_calls
            if marker == _BEGIN:
                yield from feed.skip_space()
                yield from feed.starts(("[",))
            yield from self._list()
            if self._num_calls == before:
                feed.rewind(inner)
                self._content(space + marker)

    def _list(self) -> Steps[None]:
        """The calls after the bracket, and its end. What breaks off is left unread."""
        feed, is_first = self._feed, True
        while True:
            start = feed.position
            yield from feed.skip_space()
            if not (yield from self._call(is_first=is_first)):
                feed.rewind(start)
                return
            is_first = False
            feed.mark()
            yield from feed.skip_space()
            if not (yield from feed.starts((",",))):
                break
        yield from feed.starts(("]",))
        yield from feed.skip_space()

    def _call(self, *, is_first: bool) -> Steps[bool]:
        feed = self._feed
        name = yield from self._name()
        if name is None or (is_first and name not in self._known):
            return False
        start = feed.position
        if not (yield from self._brackets()):
            return False
        arguments = _to_json(feed.since(start))
        if arguments is None:
            return False
        self._start_call(name)
        self._arguments(arguments)
        return True

    def _name(self) -> Steps[str | None]:
        """A name that a bracket follows, the bracket unread."""
        feed = self._feed
        start = feed.position
        while feed.position - start <= MAX_NAME_CHARS:
            char = yield from feed.peek()
            if char == "(":
                name = feed.since(start)
                return name if _NAME.fullmatch(name) else None
            if not (char.isalnum() or char in "_.:-") or not char:
                return None
            feed.take(1)
        return None

    def _brackets(self) -> Steps[bool]:
        """Reads from the bracket here to its match. False when there is none."""
        feed, expected = self._feed, [""]
        while (yield from feed.peek()):
            found = feed.search(_OUTSIDE)
            if found is None:
                feed.take(len(feed.unread))
                continue
            char, length = found
            feed.take(length)
            if char in _CLOSES:
                expected.append(_CLOSES[char])
            elif char in "\"'":
                yield from self._string(char)
            elif char != expected.pop():
                return False
            elif len(expected) == 1:
                return True
        return False

    def _string(self, quote: str) -> Steps[None]:
        """From after the opening quote to the end; a triple quote is three of the same."""
        feed = self._feed
        rest = yield from feed.starts((quote * 2, quote))
        if rest == quote:
            return  # an empty string
        end = quote * 3 if rest else quote
        while (yield from feed.peek()):
            if (yield from feed.starts((end,))):
                return
            if feed.take(1) == "\\":
                yield from feed.peek()
                feed.take(1)


def _to_json(arguments: str) -> str | None:
    """`(a=1, b="x")` as a JSON object; None when it is not made of names and literals."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that are none
            call = ast.parse("f" + arguments, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                return None
            values[keyword.arg] = _literal(keyword.value)
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        text.encode()
        return text
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _literal(node: ast.expr) -> object:
    """Raises ValueError for what is no literal."""
    replaced = _JsonWords().visit(node)
    return ast.literal_eval(replaced)


class _JsonWords(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in _NAMES:
            return node
        return ast.copy_location(ast.Constant(_NAMES[node.id]), node)
