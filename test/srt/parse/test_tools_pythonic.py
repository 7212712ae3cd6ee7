"""Python calls: arguments become JSON, call by call."""

from __future__ import annotations

from treadle.srt.parse.events import Content, ToolArguments, ToolStart, merge
from treadle.srt.parse.tools_pythonic import PythonicParser


def test_a_call_comes_when_it_is_complete():
    parser = PythonicParser({"f"})
    assert parser.push("[f(a=(1, 2), b={'x': None}") == []
    assert parser.push("), f(") == [
        ToolStart(0, "f"),
        ToolArguments(0, '{"a": [1, 2], "b": {"x": null}}'),
    ]


def test_a_list_that_is_no_call_is_not_held_back():
    parser = PythonicParser({"f"})
    assert merge(parser.push("[1, ")) == [Content("[1,")]
    assert merge(parser.push("[g(")) == [Content(" [g(")]
