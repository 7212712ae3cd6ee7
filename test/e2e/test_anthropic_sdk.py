"""The unmodified Anthropic SDK against a whole server with real weights."""

from __future__ import annotations

import anthropic
import pytest
from anthropic.types import MessageParam, ToolChoiceToolParam, ToolParam, ToolResultBlockParam

from test.e2e.conftest import StartServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "demo:smollm2-135m"
GREEDY = {"temperature": 0}
SYSTEM = "You are a helpful assistant. Answer in one short sentence."
HI: list[MessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER: list[ToolParam] = [
    {
        "name": "get_weather",
        "description": "Current weather of a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }
]


def test_sdk_works_unmodified(serve: StartServer):
    server = serve(MODEL, "--kv-cache-memory", "512M", "--api-key", "key")
    with anthropic.Anthropic(base_url=server.url, api_key="key", max_retries=0) as client:
        answers_streams_and_counts(client)
        tools(client)
        errors(client)


def answers_streams_and_counts(client: anthropic.Anthropic) -> None:
    messages = client.messages
    counted = messages.count_tokens(model="x", messages=HI, system=SYSTEM)
    whole = messages.create(model="x", max_tokens=24, messages=HI, system=SYSTEM, extra_body=GREEDY)
    (block,) = whole.content
    assert block.type == "text"
    assert "Paris" in block.text
    assert whole.usage.input_tokens == counted.input_tokens
    with messages.stream(
        model="x", max_tokens=24, messages=HI, system=SYSTEM, extra_body=GREEDY
    ) as stream:
        assert "".join(stream.text_stream) == block.text
        final = stream.get_final_message()
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    cached = final.usage.cache_read_input_tokens
    assert cached
    assert final.usage.input_tokens + cached == counted.input_tokens
    stopped = messages.create(
        model="x", max_tokens=24, messages=HI, system=SYSTEM, stop_sequences=["Paris"],
        extra_body={**GREEDY, "session_id": "s", "swa_replay": "exact"},
    )  # fmt: skip
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")


def tools(client: anthropic.Anthropic) -> None:
    """A model this small seldom calls a tool by itself, so the call is forced."""
    messages = client.messages
    asked: list[MessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]
    free = messages.create(
        model="x", max_tokens=40, messages=asked, tools=WEATHER, extra_body=GREEDY
    )
    assert free.stop_reason in ("end_turn", "max_tokens", "tool_use")
    choice: ToolChoiceToolParam = {"type": "tool", "name": "get_weather"}
    with messages.stream(
        model="x", max_tokens=80, messages=asked, tools=WEATHER, tool_choice=choice,
        extra_body=GREEDY,
    ) as stream:  # fmt: skip
        forced = stream.get_final_message()
    (call,) = forced.content
    assert call.type == "tool_use"
    assert (call.name, list(call.input)) == ("get_weather", ["city"])
    assert forced.stop_reason == "tool_use"
    result: ToolResultBlockParam = {
        "type": "tool_result", "tool_use_id": call.id, "content": "18 degrees and rain"
    }  # fmt: skip
    turns: list[MessageParam] = [
        *asked,
        {"role": "assistant", "content": forced.content},
        {"role": "user", "content": [result]},
    ]
    answer = messages.create(
        model="x", max_tokens=40, messages=turns, tools=WEATHER, extra_body=GREEDY
    )
    assert answer.content
    assert answer.usage.cache_read_input_tokens  # the prompt of the turn before


def errors(client: anthropic.Anthropic) -> None:
    messages = client.messages
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        messages.create(model="x", max_tokens=5, messages=HI, extra_body={"temperature": -1})
    with pytest.raises(anthropic.BadRequestError, match="context length"):
        messages.create(model="x", max_tokens=9000, messages=HI)
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="wrong").messages.create(model="x", max_tokens=5, messages=HI)
    with pytest.raises(anthropic.NotFoundError):
        client.post("/v1/messages/nope", cast_to=object, body={})
