"""The parsers as routes."""

from __future__ import annotations

from typing import Any

import pytest

from test.serving import Bench

TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1.0}}</tool_call>'


async def test_calls_of_a_text(bench: Bench):
    body: dict[str, Any] = {"text": f"Ok. {CALL}", "tools": TOOLS}
    for name in ("hermes", "auto", None):
        answer = await bench.post("/parse_function_call", {**body, "tool_call_parser": name})
        assert answer.json() == {
            "normal_text": "Ok.",
            "calls": [{"tool_index": 0, "name": "f", "parameters": '{"a": 1.0}'}],
        }
    body = {"text": "[f(a=1)]", "tools": TOOLS, "tool_call_parser": "pythonic"}
    (call,) = (await bench.post("/parse_function_call", body)).json()["calls"]
    assert call["parameters"] == '{"a": 1}'


async def test_reasoning_of_a_text(bench: Bench):
    body = {"text": "hm</think>Hello", "reasoning_parser": "deepseek_r1"}
    answer = await bench.post("/separate_reasoning", body)
    assert answer.json() == {"reasoning_text": "hm", "text": "Hello"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/parse_function_call",
            {"text": "x", "tool_call_parser": "none-such"},
            "tool_call_parser",
        ),
        ("/parse_function_call", {"text": "x", "tools": TOOLS * 2}, "tools[1].function.name"),
        ("/separate_reasoning", {"text": "x", "reasoning_parser": "none-such"}, "reasoning_parser"),
        ("/separate_reasoning", {"text": "x"}, "reasoning_parser"),
        ("/separate_reasoning", {"text": 5}, "text"),
    ],
)
async def test_refusals_name_the_field(bench: Bench, path: str, body: Any, param: str):
    response = await bench.post(path, body)
    assert response.status_code == 400
    assert response.json()["param"] == param
    assert param in response.json()["message"]
