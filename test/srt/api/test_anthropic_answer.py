"""Messages with thinking and calls: blocks of whole answers and of streams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from test.serving import Bench, FakeEngine, serving
from test.srt.api.test_anthropic_blocks import events, replay
from treadle.srt.api.anthropic_schema import MessageAnswer, MessageEvent
from treadle.srt.config import ModelSection, NetSection

PATH = "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
TOOL = {"name": "f", "description": "does f", "input_schema": {"type": "object"}}
CALL = b'<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'
REPLY = b"<think>\nhm\n</think>\n\nOk.\n" + CALL + CALL
BODY = {"messages": HI, "tools": [TOOL], "max_tokens": 190}
KINDS = ["thinking", "text", "tool_use", "tool_use"]


@pytest.fixture
async def thinking() -> AsyncIterator[Bench]:
    model = ModelSection(served_name="tiny", reasoning_parser="qwen3")
    engine = FakeEngine(reply=REPLY)
    async with serving(engine, NetSection(), model=model, context_len=1000) as served:
        yield served


async def ask(bench: Bench, **fields: Any) -> dict[str, Any]:
    response = await bench.post(PATH, {**BODY, **fields})
    assert response.status_code == 200, response.text
    msgspec.convert(response.json(), MessageAnswer)
    return response.json()


async def ask_stream(bench: Bench, **fields: Any) -> list[dict[str, Any]]:
    response = await bench.post(PATH, {**BODY, "stream": True, **fields})
    found = events(response.content)
    for event in found:
        msgspec.convert(event, MessageEvent)
    return found


def without_ids(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in block.items() if k != "id"} for block in blocks]


async def test_whole_answer_has_thinking_text_and_calls(thinking: Bench):
    body = await ask(thinking)
    assert [block["type"] for block in body["content"]] == KINDS
    thought, text, call, other = body["content"]
    assert (thought["thinking"], text["text"]) == ("hm", "Ok.")
    assert (call["name"], call["input"]) == ("f", {"a": "x"})
    assert re.fullmatch("toolu_[0-9a-f]{24}", call["id"])
    assert call["id"] != other["id"]
    assert (body["stop_reason"], body["stop_sequence"]) == ("tool_use", None)


async def test_stream_makes_the_same_blocks(thinking: Bench):
    body = await ask(thinking)
    found = await ask_stream(thinking)
    blocks = replay([event for event in found if event["type"].startswith("content_block")])
    assert without_ids(blocks) == without_ids(body["content"])
    assert found[-2]["delta"]["stop_reason"] == "tool_use"
    assert found[-2]["usage"] == body["usage"]


async def test_output_that_ends_inside_a_call_is_cut_not_called(thinking: Bench):
    thinking.engine.reply = CALL
    body = await ask(thinking, max_tokens=45)
    (call,) = body["content"]
    assert call["input"] == {"invalid_json": '{"a": "'}
    assert body["stop_reason"] == "max_tokens"


async def test_omitted_thinking_is_not_shown(thinking: Bench):
    body = await ask(thinking, thinking={"type": "adaptive", "display": "omitted"})
    assert [block["type"] for block in body["content"]] == KINDS[1:]
    found = await ask_stream(thinking, thinking={"type": "adaptive", "display": "omitted"})
    assert "thinking" not in str([event.get("delta") for event in found])


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "f"}])
async def test_forced_choice_reaches_the_engine_as_a_grammar(thinking: Bench, choice: Any):
    await ask(thinking, tool_choice={"type": "auto"})
    await ask(thinking, tool_choice=choice)
    free, forced = [request.sampling.grammar for request in thinking.engine.requests]
    assert free is None
    assert forced is not None
    assert '\\"f\\"' in forced.text


async def test_schema_that_cannot_be_forced_is_refused(thinking: Bench):
    bad = {"type": "object", "properties": {"x": {"type": "nonsense"}}}
    body = {**BODY, "tools": [{**TOOL, "input_schema": bad}], "tool_choice": {"type": "any"}}
    response = await thinking.post(PATH, body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert thinking.engine.sent == []


async def test_one_call_when_parallel_use_is_disabled(thinking: Bench):
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert len((await ask(thinking, tool_choice=choice))["content"]) == 3


async def test_without_tools_or_with_choice_none_a_call_is_text(thinking: Bench):
    thinking.engine.reply = CALL
    for fields in ({"tools": None}, {"tool_choice": {"type": "none"}}):
        body = await ask(thinking, **fields)
        assert body["content"] == [{"type": "text", "text": CALL.decode()}]
        assert body["stop_reason"] == "end_turn"


async def test_tools_and_results_are_in_the_prompt_and_counted(thinking: Bench):
    blocks = [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": "x"}}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": "42"}
    messages = [
        *HI,
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
    ]
    body = await ask(thinking, messages=messages)
    (sent,) = thinking.engine.requests
    text = bytes(token for token in sent.prompt_ids if token < 256).decode()
    assert "does f" in text
    assert '"arguments": {"a": "x"}' in text
    assert text.index("42") < text.index("so?")
    counted = await thinking.post(
        "/v1/messages/count_tokens", {"messages": messages, "tools": [TOOL]}
    )
    assert counted.json()["input_tokens"] == body["usage"]["input_tokens"]
