"""Chat completions with reasoning and calls: fields of whole answers and chunks of streams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from test.serving import Bench, FakeEngine, serving
from treadle.srt.config import ModelSection, NetSection

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = b'<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'
REPLY = b"<think>\nhm\n</think>\n\nOk.\n" + CALL


@pytest.fixture
async def thinking() -> AsyncIterator[Bench]:
    model = ModelSection(served_name="tiny", reasoning_parser="qwen3")
    engine = FakeEngine(reply=REPLY)
    async with serving(engine, NetSection(), model=model, context_len=1000) as served:
        yield served


def joined(chunks: list[dict[str, Any]], key: str) -> str:
    return "".join(
        chunk["choices"][0]["delta"].get(key) or "" for chunk in chunks if chunk["choices"]
    )


BODY = {"messages": HI, "tools": [TOOL], "max_tokens": 120}


async def test_whole_answer(thinking: Bench):
    body = (await thinking.post(PATH, BODY)).json()
    (choice,) = body["choices"]
    message = choice["message"]
    assert message["content"] == "Ok."
    assert message["reasoning_content"] == message["reasoning"] == "hm"
    (call,) = message["tool_calls"]
    assert re.fullmatch("call_[0-9a-f]{24}", call["id"])
    assert call["type"] == "function"
    assert call["function"] == {"name": "f", "arguments": '{"a": "x"}'}
    assert choice["finish_reason"] == "tool_calls"
    reasoning = len(b"<think>\nhm\n</think>")
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": reasoning}
    assert body["usage"]["reasoning_tokens"] == reasoning


async def test_content_is_null_with_calls_alone(thinking: Bench):
    thinking.engine.reply = CALL
    message = (await thinking.post(PATH, BODY)).json()["choices"][0]["message"]
    assert message["content"] is None
    assert message["reasoning_content"] is None
    assert len(message["tool_calls"]) == 1


async def test_stream(thinking: Bench):
    options = {"stream_options": {"include_usage": True}}
    chunks = await thinking.events(PATH, {**BODY, **options})
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(chunks, "reasoning_content") == joined(chunks, "reasoning") == "hm"
    assert joined(chunks, "content") == "Ok."
    calls = [
        call
        for chunk in chunks
        if chunk["choices"]
        for call in chunk["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert re.fullmatch("call_[0-9a-f]{24}", calls[0].pop("id"))
    assert calls[0] == {
        "index": 0, "type": "function", "function": {"name": "f", "arguments": ""},
    }  # fmt: skip
    assert all(set(call) == {"index", "function"} for call in calls[1:])
    assert all(set(call["function"]) == {"arguments"} for call in calls[1:])
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": "x"}'
    assert chunks[-2]["choices"][0]["delta"] == {}
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"]["reasoning_tokens"] == len(b"<think>\nhm\n</think>")


async def test_logprobs_of_every_token_though_text_is_held_back(thinking: Bench):
    body = {**BODY, "logprobs": True, "return_token_ids": True}
    whole = (await thinking.post(PATH, body)).json()["choices"][0]
    chunks = await thinking.events(PATH, body)
    logprobs, ids = [], []
    for chunk in chunks:
        logprobs += (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
        ids += chunk["choices"][0].get("token_ids", [])
    assert logprobs == whole["logprobs"]["content"]
    assert ids == whole["token_ids"]
    assert len(ids) == len(REPLY) + 1


async def test_reasoning_stays_in_the_content_when_it_is_not_to_be_apart(thinking: Bench):
    body = {"messages": HI, "separate_reasoning": False}
    message = (await thinking.post(PATH, body)).json()["choices"][0]["message"]
    assert message["content"] == REPLY.decode()
    assert message["reasoning_content"] is None
    assert message["tool_calls"] is None


async def test_reasoning_in_one_piece_and_left_out(thinking: Bench):
    chunks = await thinking.events(PATH, {**BODY, "stream_reasoning": False})
    pieces = [c["choices"][0]["delta"].get("reasoning") for c in chunks]
    assert [piece for piece in pieces if piece] == ["hm"]
    chunks = await thinking.events(PATH, {**BODY, "include_reasoning": False})
    assert joined(chunks, "reasoning") == ""
    assert joined(chunks, "content") == "Ok."


async def test_tools_reach_a_template_that_does_not_know_them(thinking: Bench):
    await thinking.post(PATH, {**BODY, "max_tokens": 1, "input_ids": None})
    text = bytes(i for i in thinking.engine.requests[0].prompt_ids if i < 256).decode()
    assert text.startswith("system:You can call functions.")
    assert '"name": "f"' in text


async def test_calls_are_content_without_tools_or_with_choice_none(thinking: Bench):
    thinking.engine.reply = CALL
    off: list[dict[str, Any]] = [{"tools": []}, {"tool_choice": "none"}]
    for fields in off:
        choice = (await thinking.post(PATH, {**BODY, **fields})).json()["choices"][0]
        assert choice["message"]["content"] == CALL.decode()
        assert choice["finish_reason"] == "stop"


async def test_model_info_names_the_parsers(thinking: Bench):
    info = (await thinking.client.get("/model_info")).json()
    assert (info["reasoning_parser"], info["tool_call_parser"]) == ("qwen3", None)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def called(arguments: object) -> list[dict[str, Any]]:
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    return [*HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"tools": [{"function": {"name": "f", "parameters": {"maximum": 10**30}}}]}, 200),
        ({"tools": [{"function": {"name": "f", "parameters": nested(100)}}]}, 200),
        (
            {
                "tools": [{"function": {"name": "f", "parameters": nested(300)}}],
                "tool_choice": "required",
            },
            400,
        ),
        ({"messages": called({"a": 10**30})}, 200),
        ({"messages": called("[" * 100_000)}, 400),
        ({"messages": called("no json")}, 400),
    ],
)
async def test_odd_tools_are_served_or_refused(fields: dict[str, Any], status: int):
    async with serving(context_len=100_000) as bench:
        response = await bench.post(PATH, {"messages": HI, "max_tokens": 2, **fields})
        assert response.status_code == status, response.text
