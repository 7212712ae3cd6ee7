"""Text that comes in pieces, read as if it were all there: what every output parser is made of.

    push --> Feed [ read | kept for a rewind | unread ] --> the parser's steps --> events

A parser is written as one generator that reads from top to bottom. Where it needs text that has
not come yet it yields, and goes on when there is more or when the text has ended. So one thing
must hold for every decision: it may not change with what comes later. Then the events do not
depend on where the text was cut, and a stream equals the parse of the whole.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import TypeVar

from .events import Content, Event, merge

T = TypeVar("T")
Steps = Generator[None, None, T]


class Feed:
    """`mark` lets `rewind` come back to a position; what was read before it is forgotten."""

    __slots__ = ("_pos", "_text", "is_ended")

    def __init__(self) -> None:
        self._text = ""
        self._pos = 0
        self.is_ended = False

    def add(self, text: str) -> None:
        self._text += text

    def mark(self) -> int:
        """Forgets what was read. Marks taken before lose their meaning."""
        if self._pos:
            self._text, self._pos = self._text[self._pos :], 0
        return 0

    @property
    def position(self) -> int:
        return self._pos

    def since(self, position: int) -> str:
        return self._text[position : self._pos]

    def rewind(self, position: int) -> None:
        self._pos = position

    @property
    def unread(self) -> str:
        return self._text[self._pos :]

    def take(self, length: int) -> str:
        text = self._text[self._pos : self._pos + length]
        self._pos += len(text)
        return text

    def search(self, pattern: re.Pattern[str]) -> tuple[str, int] | None:
        """(what matches first in the unread text, or the last group of it; length of the unread
        text up to its end).
        """
        found = pattern.search(self._text, self._pos)
        if found is None:
            return None
        return found.group(found.lastindex or 0), found.end() - self._pos

    def peek(self) -> Steps[str]:
        """The next character, "" at the end of the text."""
        while self._pos == len(self._text):
            if self.is_ended:
                return ""
            yield
        return self._text[self._pos]

    def starts(self, words: Sequence[str]) -> Steps[str]:
        """The longest of `words` that the unread text begins with, which is then read; else ""."""
        longest = max(len(word) for word in words)
        while True:
            unread = self._text[self._pos : self._pos + longest]
            is_open = any(len(w) > len(unread) and w.startswith(unread) for w in words)
            if self.is_ended or not is_open:
                break
            yield
        word = max((w for w in words if unread.startswith(w)), key=len, default="")
        self._pos += len(word)
        return word

    def skip_space(self) -> Steps[str]:
        """Reads white space; what it was."""
        start = self._pos
        while (yield from self.peek()).isspace():
            self._pos += 1
        return self._text[start : self._pos]

    def until(self, words: Sequence[str], limit: int) -> Steps[tuple[str, str] | None]:
        """(text before the first of `words`, that word), both read. None, and nothing read, when
        the text ends before, or is longer than `limit` characters.
        """
        while True:
            unread = self.unread
            start, word = find_first(unread, words)
            if word and start <= limit:
                self.take(start + len(word))
                return unread[:start], word
            if word or self.is_ended or len(unread) - held_back(unread, words) > limit:
                return None
            yield


class OutputParser(ABC):
    """Base of the parsers: subclasses write `_run`, which emits and ends when the text has."""

    def __init__(self) -> None:
        self._feed = Feed()
        self._events: list[Event] = []
        self._steps: Steps[None] | None = self._run()
        self._advance()

    def push(self, text: str) -> list[Event]:
        """Events that `text` makes certain."""
        self._feed.add(text)
        return self._advance()

    def finish(self) -> list[Event]:
        """Events of all that was held back. Nothing may be pushed after it."""
        self._feed.is_ended = True
        return self._advance()

    @abstractmethod
    def _run(self) -> Steps[None]: ...

    def _advance(self) -> list[Event]:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        events, self._events = self._events, []
        return merge(events) if len(events) > 1 else events

    def _content(self, text: str) -> None:
        if text:
            self._events.append(Content(text))


def find_first(text: str, words: Sequence[str]) -> tuple[int, str]:
    """(start, word) of the word that begins first; word "" when there is none."""
    best = (len(text), "")
    for word in words:
        start = text.find(word)
        if start >= 0 and start < best[0]:
            best = (start, word)
    return best


def held_back(text: str, words: Sequence[str]) -> int:
    """Length of the longest end of `text` that may be the beginning of one of `words`."""
    held = 0
    for word in words:
        start = text.find(word[0], max(0, len(text) - len(word) + 1))
        while start >= 0:
            if word.startswith(text[start:]):
                held = max(held, len(text) - start)
                break
            start = text.find(word[0], start + 1)
    return held
