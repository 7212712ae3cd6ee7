"""What a chat request says of reasoning."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.srt.api.chat_output import ReasoningWishes
from treadle.srt.api.chat_reasoning import reasoning_wishes, template_variables
from treadle.srt.api.schema import ChatRequest
from treadle.srt.errors import BadRequest


def body(**fields: Any) -> ChatRequest:
    return msgspec.convert(fields, ChatRequest)


OFF = {"thinking": False, "enable_thinking": False}


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({}, {}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ({"reasoning_effort": 42}, {"reasoning_effort": 42}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", **OFF}),
        ({"reasoning": {"enabled": False}}, OFF),
        ({"reasoning": {"enabled": True}}, {"thinking": True, "enable_thinking": True}),
        (
            {"reasoning": {"enabled": False}, "chat_template_kwargs": {"thinking": True, "x": 1}},
            {"thinking": True, "enable_thinking": False, "x": 1},
        ),
    ],
)
def test_template_variables(fields: dict[str, Any], variables: dict[str, Any]):
    assert template_variables(body(**fields)) == variables


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"reasoning_effort": 101}, "reasoning_effort"),
        ({"reasoning": {"effort": -1}}, "reasoning.effort"),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "high"}, "reasoning.effort"),
    ],
)
def test_bad_efforts_are_refused_by_name(fields: dict[str, Any], param: str):
    with pytest.raises(BadRequest) as caught:
        template_variables(body(**fields))
    assert caught.value.param == param


def test_wishes_default_to_all():
    assert reasoning_wishes(body()) == ReasoningWishes()
    fields = {"separate_reasoning": False, "stream_reasoning": False, "include_reasoning": False}
    assert reasoning_wishes(body(**fields)) == ReasoningWishes(False, False, False)
