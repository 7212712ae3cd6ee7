"""An agent loop with a tool on DeepSeek-V4.1 weights, through the openai SDK as a client has it."""

from __future__ import annotations

import json

import openai
import pytest
from openai.types.chat import ChatCompletionToolUnionParam

from test.e2e.conftest import StartServer
from test.e2e.server import Server

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

SYSTEM = "You are a helpful assistant."


CALCULATOR: ChatCompletionToolUnionParam = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


@pytest.fixture(scope="module")
def server(serve_module: StartServer) -> Server:
    return serve_module("demo:v41-mini", "--kv-cache-memory", "64M", "--num-threads", "1")


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_tool_is_called_answered_and_its_result_used(server: Server, streams):
    """System and tools, a call in DSML, its result, the final answer; the second turn hits."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=240)
    messages: list = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Please compute 12 * 34."},
    ]
    calls, content = ask(client, messages, streams=streams)
    assert len(calls) == 1 and calls[0]["function"]["name"] == "calculator"
    assert json.loads(calls[0]["function"]["arguments"]) == {"expression": "12 * 34"}
    messages.append({"role": "assistant", "content": content, "tool_calls": calls})
    messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "408"})
    calls, content = ask(client, messages, streams=streams)
    assert not calls and "408" in content


def ask(client: openai.OpenAI, messages: list, *, streams: bool):
    if not streams:
        answer = client.chat.completions.create(
            model="v41", messages=messages, tools=[CALCULATOR], temperature=0
        )
        message = answer.choices[0].message
        return [call.model_dump() for call in message.tool_calls or []], message.content or ""
    calls: dict[int, dict] = {}
    content = ""
    for chunk in client.chat.completions.create(
        model="v41", messages=messages, tools=[CALCULATOR], temperature=0, stream=True
    ):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for part in delta.tool_calls or []:
            call = calls.setdefault(part.index, {"type": "function", "function": {"arguments": ""}})
            if part.id:
                call["id"] = part.id
                call["function"]["name"] = part.function.name
            call["function"]["arguments"] += part.function.arguments or ""
    return list(calls.values()), content
