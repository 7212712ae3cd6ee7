"""Tools and thinking of an Anthropic request in the terms of a chat."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.srt.api.anthropic_schema import CountRequest
from treadle.srt.api.anthropic_tools import reasoning_wishes, template_variables, tool_use
from treadle.srt.errors import BadRequest, NotSupported

TOOL = {"name": "f", "description": "does f", "input_schema": {"type": "object"}}


def read(**fields: Any) -> CountRequest:
    return msgspec.convert(fields, CountRequest)


@pytest.mark.parametrize(
    ("choice", "expected", "named", "most"),
    [
        (None, "auto", None, None),
        ({"type": "auto"}, "auto", None, None),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", None, 1),
        ({"type": "any"}, "required", None, None),
        ({"type": "tool", "name": "f"}, "required", "f", 1),
        ({"type": "none"}, "none", None, None),
    ],
)
def test_choices(choice: Any, expected: str, named: str | None, most: int | None):
    use = tool_use(read(tools=[TOOL], tool_choice=choice))
    assert (use.choice, use.named, use.max_calls) == (expected, named, most)


def test_tool_is_a_function_of_a_chat():
    (tool,) = tool_use(read(tools=[{**TOOL, "type": "custom"}])).for_template()
    function = {"name": "f", "description": "does f", "parameters": {"type": "object"}}
    assert tool == {"type": "function", "function": function}
    assert tool_use(read()).tools == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tool_choice": {"type": "all"}}, "tool_choice.type must be one of auto, any, none, tool"),
        ({"tool_choice": {"type": "any"}}, "'any' needs tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "needs a name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "not among tools"),
        ({"tools": [{**TOOL, "name": "a b"}]}, r"tools\[0\]\.name must be"),
        ({"tools": [{**TOOL, "input_schema": {"type": "array"}}]},
         r"tools\[0\]\.input_schema\.type must be 'object'"),
    ],
)  # fmt: skip
def test_bad_tools_are_named_in_the_words_of_this_dialect(fields: dict[str, Any], words: str):
    with pytest.raises(BadRequest, match=words):
        tool_use(read(**fields))


def test_tools_that_run_on_the_server_are_not_supported():
    with pytest.raises(NotSupported, match="web_search"):
        tool_use(read(tools=[{"type": "web_search_20250305", "name": "web_search"}]))


def test_thinking_switches_the_template_and_the_request_may_say_otherwise():
    on = {"thinking": True, "enable_thinking": True}
    assert template_variables(read()) == {}
    assert template_variables(read(thinking={"type": "enabled", "budget_tokens": 9})) == on
    assert template_variables(read(thinking={"type": "adaptive"})) == on
    off = template_variables(
        read(thinking={"type": "disabled"}, chat_template_kwargs={"thinking": True, "x": 1})
    )
    assert off == {"thinking": True, "enable_thinking": False, "x": 1}
    effort = template_variables(read(output_config={"effort": "low"}))
    assert effort == {"reasoning_effort": "low"}


def test_display():
    assert reasoning_wishes(read()).is_shown
    assert not reasoning_wishes(read(thinking={"type": "enabled", "display": "omitted"})).is_shown
    with pytest.raises(BadRequest, match="summarized or omitted"):
        template_variables(read(thinking={"type": "enabled", "display": "loud"}))
