"""/v1/messages and /v1/messages/count_tokens over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from test.serving import CONTEXT_LEN, Bench, FakeEngine, hold, prompt, refuse, serving
from test.srt.api.test_anthropic_blocks import events
from treadle.srt.api.anthropic_schema import AnthropicError, CountAnswer, MessageAnswer
from treadle.srt.config import NetSection
from treadle.srt.messages import Finish

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HI = [{"role": "user", "content": "hi"}]
LONG = [{"role": "user", "content": "x" * CONTEXT_LEN}]


async def ask(bench: Bench, **fields: Any) -> dict[str, Any]:
    response = await bench.post(PATH, {"max_tokens": 20, "messages": HI, **fields})
    assert response.status_code == 200, response.text
    msgspec.convert(response.json(), MessageAnswer)
    return response.json()


async def ask_stream(bench: Bench, **fields: Any) -> list[dict[str, Any]]:
    body = {"max_tokens": 20, "messages": HI, "stream": True, **fields}
    response = await bench.post(PATH, body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response.content)


async def test_answer_has_blocks_reason_and_usage():
    async with serving(FakeEngine(cached=4)) as bench:
        body = await ask(bench, model="claude", system="be kind")
        assert body["id"].startswith("msg_")
        assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "tiny")
        assert body["content"] == [{"type": "text", "text": "hello"}]
        assert (body["stop_reason"], body["stop_sequence"]) == ("end_turn", None)
        (sent,) = bench.engine.requests
        assert sent.prompt_ids == prompt("system:be kind|user:hi|assistant:")
        usage = body["usage"]
        assert usage["input_tokens"] == len(sent.prompt_ids) - 4
        assert usage["cache_read_input_tokens"] == 4
        assert usage["cache_creation_input_tokens"] == 0
        assert usage["output_tokens"] == 6


async def test_stream_is_the_same_message_in_named_events():
    async with serving(FakeEngine(cached=4)) as bench:
        whole = await ask(bench)
        found = await ask_stream(bench)
        kinds = [event["type"] for event in found]
        assert kinds[:3] == ["message_start", "ping", "content_block_start"]
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        start, last = found[0]["message"], found[-2]
        assert start["content"] == []
        assert start["stop_reason"] is None
        assert start["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
        deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
        assert all(delta["type"] == "text_delta" for delta in deltas)
        assert "".join(delta["text"] for delta in deltas) == "hello"
        assert last["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
        assert last["usage"] == whole["usage"]


@pytest.mark.parametrize("is_streaming", [False, True])
async def test_reasons_to_stop(bench: Bench, is_streaming: bool):
    async def ending(**fields: Any) -> dict[str, Any]:
        if is_streaming:
            return (await ask_stream(bench, **fields))[-2]["delta"]
        return await ask(bench, **fields)

    cut = await ending(max_tokens=2)
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("max_tokens", None)
    stopped = await ending(stop_sequences=["xx", "ll"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "ll")
    none = await ending(max_tokens=0)
    assert none["stop_reason"] == "max_tokens"


async def test_last_message_of_the_assistant_is_gone_on_with(bench: Bench):
    await ask(bench, messages=[*HI, {"role": "assistant", "content": "well, "}])
    assert bench.engine.requests[0].prompt_ids == prompt("user:hi|assistant:well, ")


async def test_fields_reach_the_engine(bench: Bench):
    await ask(
        bench, temperature=0.5, top_p=0.5, top_k=3, min_p=0.1, seed=7, min_tokens=2,
        repetition_penalty=1.5, ignore_eos=True, stop_token_ids=[5], swa_replay="exact",
        swa_replay_slope=3, session_id="s", cache_salt="salt", extra_key="key", rid="mine",
        metadata={"user_id": "u"}, cache_control={"type": "ephemeral"}, service_tier="auto",
    )  # fmt: skip
    (sent,) = bench.engine.requests
    sampling = sent.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.5, 3)
    assert (sampling.min_p, sampling.seed, sampling.min_new_tokens) == (0.1, 7, 2)
    assert (sampling.repetition_penalty, sampling.stop_token_ids) == (1.5, (5,))
    assert (sent.rid, sent.session, sent.replay_mode, sent.replay_slope) == (
        "mine",
        "s",
        "exact",
        3,
    )
    assert sent.namespace == (("salt", "salt"), ("extra", "key"))


async def test_count_is_the_prompt_of_the_same_message(bench: Bench):
    fields = {"messages": HI, "system": [{"type": "text", "text": "be kind"}]}
    counted = await bench.post(COUNT, fields)
    assert counted.status_code == 200
    answer = msgspec.convert(counted.json(), CountAnswer)
    body = await ask(bench, **fields)
    assert answer.input_tokens == body["usage"]["input_tokens"]
    assert (await bench.post(COUNT, {"messages": LONG})).json()["input_tokens"] > CONTEXT_LEN


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens must be given"),
    ({"max_tokens": -1}, "max_tokens must be at least 0"),
    ({"max_tokens": "9"}, "max_tokens: Expected `int"),
    ({"messages": []}, "messages must not be empty"),
    ({"messages": LONG}, "context length"),
    ({"max_tokens": CONTEXT_LEN}, "context length"),
    ({"temperature": -1}, "temperature must be"),
    ({"stop_sequences": ["x"] * 33}, "stop_sequences must be at most 32 strings"),
    ({"stop_sequences": "x"}, "stop_sequences: Expected `array"),
    ({"thinking": {"type": "hard"}}, "thinking.type must be one of enabled"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens must be"),
    ({"tool_choice": {"type": "all"}}, "tool_choice.type must be one of auto, any"),
    ({"tool_choice": {"type": "any"}}, "needs tools"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "text only"),
    ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "server_tool_use"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "words"), BAD, ids=lambda x: x if isinstance(x, str) else "")
async def test_bad_input_is_400_before_any_byte(
    bench: Bench, fields: dict[str, Any], words: str, stream: bool
):
    body = {"max_tokens": 5, "messages": HI, "stream": stream, **fields}
    response = await bench.post(PATH, body)
    assert response.status_code == 400, response.text
    read = msgspec.convert(response.json(), AnthropicError)
    assert set(response.json()) == {"type", "error"}
    assert read.error.type == "invalid_request_error"
    assert words in read.error.message
    assert bench.engine.sent == []


@pytest.mark.parametrize("path", [PATH, COUNT])
async def test_every_refusal_has_anthropics_body(path: str):
    async def kind(bench: Bench, status: int, data: object, **headers: str) -> str:
        response = await bench.post(path, data, **headers)
        assert response.status_code == status, response.text
        assert set(response.json()) == {"type", "error"}
        assert response.headers["request-id"] == response.headers["x-request-id"]
        return response.json()["error"]["type"]

    body = {"max_tokens": 5, "messages": HI}
    net = NetSection(api_key="key", strict_model_name=True, max_body_bytes=1000)
    async with serving(net=net) as bench:
        key = {"x_api_key": "key"}
        assert await kind(bench, 401, body) == "authentication_error"
        assert await kind(bench, 400, b"{", **key) == "invalid_request_error"
        assert await kind(bench, 404, {**body, "model": "x"}, **key) == "not_found_error"
        assert await kind(bench, 413, b" " * 1001, **key) == "request_too_large"
        assert await kind(bench, 501, {**body, "lora_path": "x"}, **key) == "invalid_request_error"
        wrong = await bench.client.get(path, headers={"x-api-key": "key"})
        assert wrong.status_code == 405
        assert wrong.json()["error"]["type"] == "invalid_request_error"
        other = await bench.client.get(f"{PATH}/other", headers={"x-api-key": "key"})
        assert other.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [(503, "overloaded_error"), (500, "api_error"), (400, "invalid_request_error")],
)
async def test_engine_refuses_with_a_status(stream: bool, status: int, kind: str):
    async with serving(FakeEngine(script=refuse(status, "the queue is full"))) as bench:
        response = await bench.post(PATH, {"max_tokens": 5, "messages": HI, "stream": stream})
        assert response.status_code == status
        assert response.json()["error"]["type"] == kind
        assert ("retry-after" in response.headers) == (status == 503)


async def test_failure_in_a_stream_is_an_error_event():
    def die(engine: FakeEngine, request: Any) -> None:
        engine.emit(request.rid, b"he")
        engine.emit(request.rid, [], Finish("abort", message="no room", status=503))

    async with serving(FakeEngine(script=die)) as bench:
        found = await ask_stream(bench)
        assert found[-1] == {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "no room"},
        }


async def test_loss_of_the_engine_names_no_process():
    async with serving(FakeEngine(script=hold)) as bench:
        asked = asyncio.create_task(bench.post(PATH, {"max_tokens": 5, "messages": HI}))
        while not bench.engine.requests:
            await asyncio.sleep(0)
        bench.frontend.lose("scheduler: killed by signal 9")
        response = await asked
        assert response.status_code == 503
        assert response.json()["error"]["type"] == "overloaded_error"
        assert "signal" not in response.text


async def test_starting_is_overloaded():
    async with serving(is_ready=False) as bench:
        response = await bench.post(PATH, {"max_tokens": 5, "messages": HI})
        assert response.status_code == 503
        assert response.json()["error"]["type"] == "overloaded_error"
