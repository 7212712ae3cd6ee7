"""Calls as JSON objects: what is passed on when."""

from __future__ import annotations

from treadle.srt.parse.events import Content, ToolArguments, ToolStart
from treadle.srt.parse.tools_json import HermesParser, Llama3Parser


def test_a_call_is_announced_before_its_arguments_are_complete():
    parser = HermesParser({"f"})
    assert parser.push('<tool_call>{"name": "f", "arguments": ') == []
    events = parser.push('{"text": "a long ')
    assert events[0] == ToolStart(0, "f")
    assert "".join(e.text for e in events[1:] if isinstance(e, ToolArguments)) == (
        '{"text": "a long '
    )


def test_only_what_may_be_a_marker_is_held_back():
    parser = HermesParser({"f"})
    assert parser.push("a <tool") == [Content("a")]
    assert parser.push("s> b") == [Content(" <tools> b")]


def test_a_plain_json_answer_is_not_held_back_to_its_end():
    parser = Llama3Parser({"f"})
    assert parser.push('{"city": "Pa') == [Content('{"city": "Pa')]


def test_arguments_before_the_name_wait_for_it():
    parser = HermesParser({"f"})
    assert parser.push('<tool_call>{"arguments": {"a": 1}, "name": ') == []
    assert parser.push('"f"') == [ToolStart(0, "f"), ToolArguments(0, '{"a": 1}')]
