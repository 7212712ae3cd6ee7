"""The one form of events that does not depend on cuts."""

from __future__ import annotations

from treadle.srt.parse.events import Content, Event, Reasoning, ToolArguments, ToolStart, merge


def test_neighbours_of_a_kind_are_joined_and_others_are_not():
    events: list[Event] = [
        Reasoning("a"), Reasoning("b"), Content("c"), Content("d"), ToolStart(0, "f"),
        ToolArguments(0, "{"), ToolArguments(0, "}"), ToolStart(1, "f"), ToolArguments(1, "{}"),
        Content("e"),
    ]  # fmt: skip
    assert merge(events) == [
        Reasoning("ab"), Content("cd"), ToolStart(0, "f"), ToolArguments(0, "{}"),
        ToolStart(1, "f"), ToolArguments(1, "{}"), Content("e"),
    ]  # fmt: skip
