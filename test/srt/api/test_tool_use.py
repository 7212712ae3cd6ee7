"""Tools of a request: what is refused by name, and what templates get."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.srt.api.schema import NamedTool, Tool
from treadle.srt.api.tool_use import MAX_TOOLS, ToolUse, read_tools
from treadle.srt.errors import BadRequest


def tool(name: str = "f", **function: Any) -> Tool:
    return msgspec.convert({"type": "function", "function": {"name": name, **function}}, Tool)


def named(name: str) -> NamedTool:
    return msgspec.convert({"type": "function", "function": {"name": name}}, NamedTool)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ("auto", None, None)),
        ("auto", ("auto", None, None)),
        ("none", ("none", None, None)),
        ("required", ("required", None, None)),
        (named("f"), ("required", "f", 1)),
    ],
)
def test_choices(choice: Any, expected: tuple[str, str | None, int | None]):
    use = read_tools([tool("f"), tool("g")], choice, is_parallel=None)
    assert (use.choice, use.named, use.max_calls) == expected
    assert use.is_parsed is (expected[0] != "none")


def test_no_parallel_calls_is_one_call():
    assert read_tools([tool()], None, is_parallel=False).max_calls == 1
    assert read_tools([tool()], None, is_parallel=True).max_calls is None


def test_without_tools_nothing_is_parsed():
    assert read_tools(None, "auto", is_parallel=False) == ToolUse()
    assert not read_tools([], None, is_parallel=None).is_parsed


def test_template_gets_what_the_client_sent_unless_calls_are_off():
    schema = {"type": "object", "properties": {"x": {"type": "number"}}}
    tools = [tool("f", parameters=schema, description="d"), tool("g")]
    assert read_tools(tools, None, is_parallel=None).for_template() == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
        {"type": "function", "function": {"name": "g"}},
    ]
    assert read_tools(tools, "none", is_parallel=None).for_template() == []


@pytest.mark.parametrize(
    ("tools", "choice", "param", "words"),
    [
        ([], "required", "tool_choice", "needs tools"),
        ([], named("f"), "tool_choice", "not among tools"),
        ([tool("f")], named("g"), "tool_choice", "not among tools"),
        ([tool("f")], "perhaps", "tool_choice", "none, auto, required"),
        ([tool("f"), tool("f")], None, "tools[1].function.name", "is 'f', as that of an earlier"),
        ([tool("")], None, "tools[0].function.name", "1 to 256"),
        ([tool("a b")], None, "tools[0].function.name", "1 to 256"),
        ([tool("f" * 257)], None, "tools[0].function.name", "1 to 256"),
        ([tool()] * (MAX_TOOLS + 1), None, "tools", "at most"),
        (
            [tool("f", parameters={"type": "string"})],
            None,
            "tools[0].function.parameters.type",
            "must be 'object'",
        ),
        (
            [tool("f", parameters={"properties": []})],
            None,
            "tools[0].function.parameters.properties",
            "must be an object",
        ),
        (
            [tool("f", parameters={"properties": {"x": 5}})],
            None,
            "tools[0].function.parameters.properties.x",
            "must be a schema",
        ),
        (
            [tool("f", parameters={"required": "x"})],
            None,
            "tools[0].function.parameters.required",
            "list of names",
        ),
    ],
)
def test_refusals_name_the_field(tools: list[Tool], choice: Any, param: str, words: str):
    with pytest.raises(BadRequest, match=words) as caught:
        read_tools(tools, choice, is_parallel=None)
    assert caught.value.param == param


def test_only_functions_are_tools():
    other = msgspec.convert({"type": "web_search", "function": {"name": "f"}}, Tool)
    with pytest.raises(BadRequest, match="must be 'function'"):
        read_tools([other], None, is_parallel=None)
