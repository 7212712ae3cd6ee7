"""Reads JSON as a model writes it, passing it on before it is complete.

Owns the way through one object: where a value ends, and which text is certain to belong to it. It
does not judge values: numbers, escapes and mistakes inside a value are passed on as they were
written, so that arguments arrive to the letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from .feed import Feed, Steps

MAX_NAME_CHARS = 256
_OUTSIDE = re.compile(r'["{}\[\]<]')
# The rest of a string: group 1 is the closing quote, the first half of an escape, or nothing.
_INSIDE = re.compile(r'(?:[^"\\]+|\\.)*(["\\]?)', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}
_SCALAR = re.compile(r"[^\s,{}\[\]\"<]*")


class Malformed(Exception):
    """The text is no call; whoever began to read rewinds."""


def read_object(feed: Feed, emit: Callable[[str], None]) -> Steps[bool]:
    """Reads the object or list that begins here, emitting it as it comes. False when it does not
    end: the text is over, a bracket does not match, or a `<` stands outside of strings (a marker
    of the format, which is left unread).
    """
    open_brackets: list[str] = []
    while (yield from feed.peek()):
        found = feed.search(_OUTSIDE)
        if found is None:
            emit(feed.take(len(feed.unread)))
            continue
        char, end = found
        if char == '"':
            emit(feed.take(end))
            yield from _read_rest_of_string(feed, emit)
        elif char in _CLOSES:
            open_brackets.append(_CLOSES[char])
            emit(feed.take(end))
        elif char == "<" or char != open_brackets.pop():
            emit(feed.take(end - 1))
            return False
        else:
            emit(feed.take(end))
            if not open_brackets:
                return True
    return False


def _read_rest_of_string(feed: Feed, emit: Callable[[str], None]) -> Steps[None]:
    """Up to the closing quote, which is read, or the end of the text."""
    while (yield from feed.peek()):
        found = feed.search(_INSIDE)
        assert found is not None  # it matches any text
        last, length = found
        emit(feed.take(length))
        if last == '"':
            return
        if last and (yield from feed.peek()):
            emit(feed.take(1))


def read_string(feed: Feed, limit: int) -> Steps[str]:
    """The value of the string that begins here. Raises Malformed."""
    start = feed.position
    if (yield from feed.peek()) != '"':
        raise Malformed
    feed.take(1)
    while True:
        char = yield from feed.peek()
        if not char or feed.position - start > limit:
            raise Malformed
        feed.take(1)
        if char == '"':
            break
        if char == "\\":
            yield from feed.peek()
            feed.take(1)
    try:
        value = str(json.loads(feed.since(start), strict=False))
    except ValueError:
        raise Malformed from None
    return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text


def read_scalar(feed: Feed) -> Steps[str]:
    """A number, true, false or null, as text. Raises Malformed when there is none."""
    while True:
        text = feed.unread
        found = _SCALAR.match(text)
        length = found.end() if found else 0
        if length > MAX_NAME_CHARS:
            raise Malformed
        if length < len(text) or feed.is_ended:
            if not length:
                raise Malformed
            return feed.take(length)
        yield


def skip_value(feed: Feed, emit: Callable[[str], None]) -> Steps[None]:
    """Any value. Raises Malformed when it does not end."""
    char = yield from feed.peek()
    if char == '"':
        start = feed.position
        yield from read_string(feed, limit=1 << 30)
        emit(feed.since(start))
    elif char in ("{", "["):
        if not (yield from read_object(feed, emit)):
            raise Malformed
    else:
        emit((yield from read_scalar(feed)))


def read_key(feed: Feed) -> Steps[str]:
    """The next key of an object, its colon and the space around them. Raises Malformed."""
    yield from feed.skip_space()
    key = yield from read_string(feed, MAX_NAME_CHARS)
    yield from feed.skip_space()
    if not (yield from feed.starts((":",))):
        raise Malformed
    yield from feed.skip_space()
    return key
