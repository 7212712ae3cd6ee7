"""Every kind of bad input, one row each: status, type, words and the field that is named."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from test.serving import CONTEXT_LEN, FakeEngine, refuse, serving
from treadle.srt.config import NetSection

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/generate"
HI = [{"role": "user", "content": "hi"}]
LONG = "x" * CONTEXT_LEN


@dataclass(frozen=True)
class Row:
    path: str
    body: Any
    status: int
    words: str
    param: str | None = None
    code: str | int | None = None


def chat(status: int, words: str, param: str | None = None, **fields: Any) -> Row:
    return Row(CHAT, {"messages": HI, **fields}, status, words, param)


def native(status: int, words: str, param: str | None = None, **fields: Any) -> Row:
    body = {"text": "a", "sampling_params": fields}
    return Row(NATIVE, body, status, words, param)


PART = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
TOOL = {"type": "function", "function": {"name": "f"}}

ROWS = [
    Row(CHAT, b"{", 400, "not valid JSON"),
    Row(TEXT, b"\xff", 400, "not valid JSON"),
    Row(NATIVE, b"[]", 400, "Expected `object`"),
    Row(CHAT, b"[" * 100_000, 400, "object"),
    Row(CHAT, {"messages": "hi"}, 400, "Expected `array", "messages"),
    Row(CHAT, {"messages": [{"role": 1}]}, 400, "Expected `str`", "messages[0].role"),
    Row(CHAT, {"messages": [{}]}, 400, "required", "messages[0].role"),
    chat(400, "Expected `float", "temperature", temperature="hot"),
    chat(400, "Expected `int", "max_tokens", max_tokens=True),
    Row(NATIVE, {"text": "a", "sampling_params": {"top_k": "1"}}, 400, "int",
        "sampling_params.top_k"),
    # grammars
    chat(400, "regex and response_format are both set", "response_format", regex="a",
         response_format={"type": "json_object"}),
    chat(400, "needs json_schema.schema", "response_format.json_schema",
         response_format={"type": "json_schema"}),
    chat(400, "Invalid type: x", "json_schema", json_schema='{"type": "x"}'),
    Row(NATIVE, {"text": "a", "sampling_params": {"regex": "("}}, 400, "unclosed group", "regex"),
    Row(TEXT, {"prompt": "a", "ebnf": "root ::= x"}, 400, "'x' not found", "ebnf"),
    # inputs
    Row(NATIVE, {}, 400, "text, input_ids and input_embeds", "text"),
    Row(NATIVE, {"text": "a", "input_ids": [1]}, 400, "text, input_ids", "text"),
    Row(NATIVE, {"text": ["a", "b"], "sampling_params": [{}]}, 400, "2 prompts", "sampling_params"),
    Row(NATIVE, {"text": ["a", "b"], "rid": ["x"]}, 400, "rid has 1 entries", "rid"),
    Row(NATIVE, {"text": ["a"], "rid": ["x"], "extra_key": []}, 400, "0 entries", "extra_key"),
    Row(NATIVE, {"input_ids": [1, [2]]}, 400, "mixes", "input_ids[0]"),
    # empty
    Row(CHAT, {"messages": []}, 400, "messages must not be empty", "messages"),
    Row(CHAT, {}, 400, "messages must not be empty", "messages"),
    Row(TEXT, {"prompt": ""}, 400, "prompt must not be empty", "prompt"),
    Row(TEXT, {"prompt": []}, 400, "prompt must not be empty", "prompt"),
    Row(TEXT, {"prompt": [[]]}, 400, "must not be empty", "prompt[0]"),
    Row(TEXT, {}, 400, "prompt must not be empty", "prompt"),
    Row(NATIVE, {"text": []}, 400, "text must not be empty", "text"),
    Row(NATIVE, {"input_ids": []}, 400, "input_ids must not be empty", "input_ids"),
    Row(CHAT, {"input_ids": []}, 400, "input_ids must not be empty", "input_ids"),
    # length
    Row(TEXT, {"prompt": LONG}, 400, f"context length is {CONTEXT_LEN}", "prompt",
        "context_length_exceeded"),
    Row(CHAT, {"messages": [{"role": "user", "content": LONG}]}, 400, "context length", "messages",
        "context_length_exceeded"),
    Row(NATIVE, {"text": LONG}, 400, f"has {CONTEXT_LEN + 1} tokens", "text",
        "context_length_exceeded"),
    Row(TEXT, {"prompt": "a", "max_tokens": CONTEXT_LEN}, 400, "context length", "max_tokens",
        "context_length_exceeded"),
    chat(400, "context length", "max_completion_tokens", max_completion_tokens=10**30),
    chat(400, "context length", "max_tokens", max_tokens=CONTEXT_LEN),
    native(400, "context length", "sampling_params.max_new_tokens", max_new_tokens=CONTEXT_LEN),
    # ranges
    native(400, "at least 0", "sampling_params.temperature", temperature=-0.1),
    native(400, "above 0, at most 1", "sampling_params.top_p", top_p=0),
    native(400, "at most 1", "sampling_params.top_p", top_p=1.1),
    native(400, "-1 (off) or at least 1", "sampling_params.top_k", top_k=0),
    native(400, "at most 1", "sampling_params.min_p", min_p=2),
    native(400, "at least -2, at most 2", "sampling_params.frequency_penalty", frequency_penalty=3),
    native(400, "at least -2", "sampling_params.presence_penalty", presence_penalty=-3),
    native(400, "above 0, at most 2", "sampling_params.repetition_penalty", repetition_penalty=0),
    native(400, "at least 0", "sampling_params.max_new_tokens", max_new_tokens=-1),
    native(400, "at most 5", "sampling_params.min_new_tokens", max_new_tokens=5, min_new_tokens=6),
    native(400, "at least 1", "sampling_params.n", n=0),
    native(400, "at most 32 strings", "sampling_params.stop", stop=["x"] * 33),
    native(400, "64 bits", "sampling_params.sampling_seed", sampling_seed=2**63),
    native(400, "vocabulary", "sampling_params.stop_token_ids", stop_token_ids=[10**9]),
    native(400, "vocabulary", "sampling_params.logit_bias", logit_bias={"999": 1}),
    native(400, "token id as key", "sampling_params.logit_bias", logit_bias={"a": 1}),
    native(400, "vocabulary", "sampling_params.logit_bias", logit_bias={"9" * 5000: 1}),
    native(400, "at least 1", "sampling_params.stream_interval", stream_interval=0),
    native(400, "unknown field `topp`", "sampling_params.topp", topp=1),
    chat(400, "at most 20", "top_logprobs", logprobs=True, top_logprobs=21),
    chat(400, "needs logprobs", "top_logprobs", top_logprobs=2),
    Row(TEXT, {"prompt": "a", "logprobs": 21}, 400, "at most 20", "logprobs"),
    Row(TEXT, {"prompt": "a", "prompt_logprobs": "x"}, 400, "Expected `", "prompt_logprobs"),
    chat(400, "Expected `", "prompt_logprobs", prompt_logprobs=[1]),
    chat(400, "seed", "seed", seed=2**63),
    chat(400, "min_tokens", "min_tokens", min_tokens=-1),
    chat(400, "stream: true", "stream_options", stream_options={"include_usage": True}),
    chat(400, "bounded, exact, canonical, off", "swa_replay", swa_replay="maybe"),
    chat(400, "at least 0", "swa_replay_slope", swa_replay_slope=-1),
    chat(400, "at least -2147483648", "priority", priority=2**40),
    chat(400, "above 0", "deadline_s", deadline_s=0),
    Row(NATIVE, {"text": "a", "deadline_s": 1e9}, 400, "at most 1e+06", "deadline_s"),
    Row(CHAT, {"messages": HI * 33_000}, 400, "at most 32768", "messages"),
    # ids
    Row(NATIVE, {"input_ids": [1, 260]}, 400, "260, which is outside the vocabulary", "input_ids"),
    Row(NATIVE, {"input_ids": [-1]}, 400, "vocabulary", "input_ids"),
    Row(TEXT, {"prompt": [10**30]}, 400, "vocabulary", "prompt"),
    Row(CHAT, {"input_ids": [999]}, 400, "vocabulary", "input_ids"),
    # tools, templates, media
    chat(400, "needs tools", "tool_choice", tool_choice="required"),
    chat(400, "not among tools", "tool_choice", tools=[TOOL],
         tool_choice={"type": "function", "function": {"name": "g"}}),
    chat(400, "none, auto, required", "tool_choice", tool_choice="perhaps"),
    chat(400, "Expected `object", "tools[0].function.parameters",
         tools=[{"type": "function", "function": {"name": "f", "parameters": 5}}]),
    chat(400, "json_schema.schema", "response_format.json_schema",
         response_format={"type": "json_schema"}),
    chat(400, "response_format.type", "response_format.type", response_format={"type": "xml"}),
    chat(400, "trust", "chat_template", chat_template="{{ x }}"),
    chat(400, "role assistant", "continue_final_message", continue_final_message=True),
    chat(400, "exclude each other", "continue_final_message", continue_final_message=True,
         add_generation_prompt=True),
    Row(CHAT, {"messages": [PART]}, 400, "text only", "messages[0].content[0].type"),
    Row(CHAT, {"messages": [{"role": "wizard", "content": ""}]}, 400, "must be one of",
        "messages[0].role"),
    Row(CHAT, {"messages": [{"role": "user"}]}, 400, "must not be null", "messages[0].content"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.path}-{r.words}-{r.param}")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_bad_input_is_refused_with_words_before_any_byte(row: Row, stream: bool):
    async with serving() as bench:
        body = row.body
        if stream and isinstance(body, dict) and "stream_options" not in body:
            body = {**body, "stream": True}
        response = await bench.post(row.path, body)
        assert response.status_code == row.status, response.text
        error = response.json()
        assert error["error"]["type"] == error["type"] == "BadRequestError"
        assert error["object"] == "error"
        assert row.words in error["error"]["message"] == error["message"]
        assert error["error"]["param"] == error["param"] == row.param
        assert error["error"]["code"] == error["code"] == (row.code or error["code"])
        assert bench.engine.sent == []
        assert bench.frontend.num_live == 0


async def test_wrong_content_type_is_400():
    async with serving() as bench:
        response = await bench.client.post(NATIVE, data={"text": "a"})
        assert response.status_code == 400
        assert response.json()["param"] == "content-type"


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE, "/tokenize"])
async def test_body_beyond_the_limit_is_413(path: str):
    async with serving(net=NetSection(max_body_bytes=1000)) as bench:

        async def chunks():
            for _ in range(3):
                yield b" " * 500

        whole = await bench.post(path, b" " * 1001)
        assert whole.status_code == 413
        chunked = await bench.client.post(path, content=chunks())
        assert chunked.status_code == 413
        assert "1000 bytes" in chunked.json()["message"]


async def test_the_largest_body_does_not_hold_up_the_answers_of_others():
    async with serving() as bench:
        message = b'{"role":"user","content":"a"},'
        count = bench.service.config.net.max_body_bytes // len(message) - 2
        body = b'{"messages":[' + message * count + message[:-1] + b"]}"
        posting = asyncio.create_task(bench.post(CHAT, body))
        answers = 0
        while not posting.done():
            async with asyncio.timeout(60):
                assert (await bench.client.get("/health")).status_code == 200
            answers += 1
            await asyncio.sleep(0)
        assert posting.result().status_code == 400
        assert answers > 1


async def test_duplicate_live_rid_is_400():
    async with serving() as bench:
        jobs = {"text": ["a", "b"], "rid": ["same", "same"]}
        response = await bench.post(NATIVE, jobs)
        assert response.status_code == 400
        assert response.json()["param"] == "rid"


@pytest.mark.parametrize("was_admitted", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
async def test_full_queue_is_503_with_retry_after(path: str, stream: bool, was_admitted: bool):
    engine = FakeEngine(script=refuse(503, "the queue is full", was_admitted=was_admitted))
    async with serving(engine) as bench:
        body = {"messages": HI, "prompt": "a", "text": "a", "stream": stream}
        response = await bench.post(path, body)
        assert response.status_code == 503
        assert "queue is full" in response.json()["error"]["message"]
        assert int(response.headers["retry-after"]) > 0
        assert ("x-not-admitted" in response.headers) == (not was_admitted)


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
async def test_starting_and_draining_are_503(path: str):
    async with serving(is_ready=False) as bench:
        body = {"messages": HI, "prompt": "a", "text": "a"}
        starting = await bench.post(path, body)
        assert starting.status_code == 503
        assert "starting" in starting.json()["message"]
        bench.frontend.drain()
        draining = await bench.post(path, body)
        assert draining.status_code == 503
        assert "draining" in draining.json()["message"]


async def test_failure_of_the_engine_for_one_request_is_500_with_an_id_and_no_trace():
    async with serving(FakeEngine(script=refuse(500, "the logits are not finite"))) as bench:
        response = await bench.post(TEXT, {"prompt": "a"})
        assert response.status_code == 500
        assert response.json()["type"] == "InternalServerError"
        assert "Traceback" not in response.text
