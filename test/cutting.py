"""Parsers of output under every cut: what a stream gives must be what the whole text gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from treadle.srt.parse.events import Content, Event, Reasoning, ToolArguments, ToolStart, merge
from treadle.srt.parse.feed import OutputParser

Make = Callable[[], OutputParser]


def parse(make: Make, pieces: Iterable[str]) -> list[Event]:
    parser = make()
    events = [event for piece in pieces for event in parser.push(piece)]
    return merge([*events, *parser.finish()])


def random_pieces(text: str, seed: int) -> list[str]:
    draw = random.Random(seed)
    pieces, start = [], 0
    while start < len(text):
        end = start + draw.choice((1, 1, 2, 3, 5, 8, 40))
        pieces.append(text[start:end])
        start = end
    return pieces


def check_every_prefix(make: Make, text: str) -> None:
    """Every prefix, a character at a time and in random pieces, equals its parse as a whole."""
    for length in range(len(text) + 1):
        prefix = text[:length]
        expected = parse(make, [prefix])
        assert parse(make, prefix) == expected, prefix
        assert parse(make, random_pieces(prefix, length)) == expected, prefix
        check_events(expected)


def check_events(events: list[Event]) -> None:
    """Calls count up, arguments belong to the call opened last, no text is empty."""
    opened = 0
    for event in events:
        if isinstance(event, ToolStart):
            assert event.index == opened
            assert event.name
            opened += 1
        elif isinstance(event, ToolArguments):
            assert event.index == opened - 1
            assert event.text
        else:
            assert isinstance(event, Content | Reasoning)
            assert event.text


def calls(events: list[Event]) -> list[tuple[str, str]]:
    """(name, arguments) of each call."""
    found: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, ToolStart):
            found.append((event.name, ""))
        elif isinstance(event, ToolArguments):
            found[event.index] = (found[event.index][0], found[event.index][1] + event.text)
    return found


def content(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))
