"""Tools with the official SDK on real weights: forced calls hold their schema, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

from test.e2e.conftest import StartServer
from test.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

WEATHER: dict[str, object] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "unit", "days"],
}
TOOLS: list[ChatCompletionFunctionToolParam] = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "description": "The time of day."}},
]
NAMED: Any = {"type": "function", "function": {"name": "weather"}}
ASK: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the weather in Paris?"}
]


def check(call: Any) -> None:
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        assert set(arguments) == {"city", "unit", "days"}
        assert arguments["unit"] in ("C", "F")
        assert 1 <= arguments["days"] <= 9
    else:
        assert (call.function.name, arguments) == ("now", {})


@pytest.fixture(scope="module", params=["demo:smollm2-135m", "demo:gemma3-270m"])
def server(serve_module: StartServer, request: pytest.FixtureRequest) -> Server:
    return serve_module(request.param, "--kv-cache-memory", "256M")


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_forced_calls_hold_their_schema(server: Server, choice: Any):
    body: dict[str, Any] = {
        "model": "x", "messages": ASK, "tools": TOOLS, "tool_choice": choice, "temperature": 0,
        "parallel_tool_calls": False, "max_tokens": 150,
    }  # fmt: skip
    with openai.OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client:
        whole = client.chat.completions.create(**body).choices[0]
        with client.chat.completions.stream(**body) as stream:
            streamed = stream.get_final_completion().choices[0]
        assert whole.finish_reason == streamed.finish_reason == "tool_calls"
        (call,) = whole.message.tool_calls or []
        (other,) = streamed.message.tool_calls or []
        check(call)
        assert call.function.to_dict()["arguments"] == other.function.arguments
        if choice is NAMED:
            assert call.function.name == "weather"
        history: list[Any] = [
            *ASK,
            {"role": "assistant", "tool_calls": [call.to_dict()]},
            {"role": "tool", "tool_call_id": call.id, "content": "Sunny."},
        ]
        answer = client.chat.completions.create(
            model="x", messages=history, tools=TOOLS, tool_choice="none", max_tokens=8
        )
        assert answer.choices[0].message.content
