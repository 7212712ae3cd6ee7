"""What parsers of model output say: pieces of reasoning, of content and of tool calls.

Invariants: a `ToolStart` comes before the `ToolArguments` of its index; indices count up from 0;
an event with text is never empty. How a text is cut into events has no meaning: `merge` gives the
one form that is the same however the output was cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class ToolStart:
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """`text` goes on the JSON text of the arguments of call `index`."""

    index: int
    text: str


Event = Reasoning | Content | ToolStart | ToolArguments


def merge(events: Iterable[Event]) -> list[Event]:
    """Neighbours of one kind (and one call) joined."""
    merged: list[Event] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, Reasoning) and isinstance(last, Reasoning):
            merged[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, Content) and isinstance(last, Content):
            merged[-1] = Content(last.text + event.text)
        elif (
            isinstance(event, ToolArguments)
            and isinstance(last, ToolArguments)
            and event.index == last.index
        ):
            merged[-1] = ToolArguments(event.index, last.text + event.text)
        else:
            merged.append(event)
    return merged
