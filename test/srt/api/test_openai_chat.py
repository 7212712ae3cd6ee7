"""/v1/chat/completions: whole answers and streams, field by field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from test.serving import BOS, EOS, Bench, FakeEngine, prompt, serving
from treadle.srt.api.schema import ChatRequest
from treadle.srt.config import ApiSection, NetSection

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


async def test_whole_answer_has_every_field_clients_read(bench: Bench):
    bench.engine.cached, bench.engine.replayed = 8, 4
    response = await bench.post(PATH, {"messages": HI, "rid": "my-id", "model": "anything"})
    body = response.json()
    assert body["id"] == "my-id"
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    assert body["metadata"] == {"weight_version": "default"}
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "hello"
    assert choice["finish_reason"] == "stop"
    assert choice["matched_stop"] == EOS
    assert choice["logprobs"] is None
    assert body["usage"] == {
        "prompt_tokens": 19,
        "completion_tokens": 6,
        "total_tokens": 25,
        "prompt_tokens_details": {
            "cached_tokens": 8,
            "replayed_tokens": 4,
            "approx_generation": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": 0},
        "reasoning_tokens": 0,
    }
    assert response.headers["cache-control"] == "no-store"


async def test_template_and_defaults_reach_the_engine(bench: Bench):
    await bench.post(PATH, {"messages": [{"role": "system", "content": "s"}, *HI]})
    (request,) = bench.engine.requests
    text = "system:s|user:hi|assistant:"
    assert request.prompt_ids == prompt(text)
    assert request.sampling.max_new_tokens == 200 - len(request.prompt_ids)
    assert request.sampling.temperature == 1.0
    assert request.sampling.stop_token_ids == (EOS,)
    assert request.top_logprobs is None
    assert request.replay_mode is None


async def test_all_sampling_fields_reach_the_engine(bench: Bench):
    fields = {
        "temperature": 0, "top_p": 0.5, "top_k": 0, "min_p": 0.1, "frequency_penalty": 1,
        "presence_penalty": -1, "repetition_penalty": 1.5, "seed": -3, "max_tokens": 7,
        "min_tokens": 2, "ignore_eos": True, "stop_token_ids": [5, 5], "logit_bias": {"7": 900},
        "swa_replay": "exact", "swa_replay_slope": 3, "cache_salt": "a", "extra_key": "b",
        "session_id": "s",
    }  # fmt: skip
    await bench.post(PATH, {"messages": HI, **fields})
    (request,) = bench.engine.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0,
        0.5,
        -1,
        0.1,
    )
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (1, -1)
    assert (sampling.repetition_penalty, sampling.seed) == (1.5, -3)
    assert (sampling.max_new_tokens, sampling.min_new_tokens) == (7, 2)
    assert sampling.stop_token_ids == (5,)
    assert sampling.logit_bias == ((7, 100.0),)
    assert (request.replay_mode, request.replay_slope) == ("exact", 3)
    assert request.namespace == (("salt", "a"), ("extra", "b"))
    assert request.session == "s"


async def test_stream_is_role_contents_finish_usage(bench: Bench):
    bench.engine.cached = 8
    options = {"include_usage": True}
    chunks = await bench.events(PATH, {"messages": HI, "stream_options": options})
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[0]["choices"][0]["finish_reason"] is None
    contents = chunks[1:-2]
    assert [c["choices"][0]["delta"]["content"] for c in contents] == list("hello")
    assert all(c["choices"][0]["finish_reason"] is None for c in contents)
    assert chunks[-2]["choices"][0]["delta"] == {}
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-2]["choices"][0]["matched_stop"] == EOS
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 25
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 8


async def test_stream_has_no_usage_chunk_unless_asked(bench: Bench):
    chunks = await bench.events(PATH, {"messages": HI})
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)


async def test_continuous_usage_counts_up(bench: Bench):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = await bench.events(PATH, {"messages": HI, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [0, 1, 2, 3, 4, 5, 6, 6]


async def test_two_choices_have_own_ids_seeds_and_finish_chunks(bench: Bench):
    chunks = await bench.events(PATH, {"messages": HI, "n": 2, "rid": "r", "seed": 5})
    assert [str(r.rid) for r in bench.engine.requests] == ["r-0", "r-1"]
    assert [r.sampling.seed for r in bench.engine.requests] == [5, 6]
    for index in (0, 1):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in own) == "hello"
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["stop"]


async def test_usage_counts_the_prompt_once_for_two_choices(bench: Bench):
    bench.engine.cached = 16
    usage = (await bench.post(PATH, {"messages": HI, "n": 2})).json()["usage"]
    assert usage["prompt_tokens"] == 19
    assert usage["completion_tokens"] == 12
    assert usage["prompt_tokens_details"]["cached_tokens"] == 16


async def test_logprobs_of_every_token_in_both_forms(bench: Bench):
    body = {"messages": HI, "logprobs": True, "top_logprobs": 2}
    whole = (await bench.post(PATH, body)).json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in whole] == [*"hello", "<eos>"]
    assert whole[0] == {
        "token": "h",
        "bytes": [104],
        "logprob": -0.5,
        "top_logprobs": [
            {"token": "h", "bytes": [104], "logprob": -0.5},
            {"token": "i", "bytes": [105], "logprob": -1.5},
        ],
    }
    chunks = await bench.events(PATH, body)
    streamed: list[Any] = []
    for chunk in chunks:
        streamed += (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    assert streamed == whole


async def test_stop_string_is_trimmed_across_tokens_and_aborts_the_engine(bench: Bench):
    body = {"messages": HI, "stop": ["lo", "zzz"]}
    choice = (await bench.post(PATH, body)).json()["choices"][0]
    assert choice["message"]["content"] == "hel"
    assert choice["matched_stop"] == "lo"
    chunks = await bench.events(PATH, body)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "hel"
    kept = (await bench.post(PATH, {**body, "no_stop_trim": True})).json()["choices"][0]
    assert kept["message"]["content"] == "hello"


async def test_token_ids_on_request(bench: Bench):
    body = {"messages": HI, "return_token_ids": True, "max_tokens": 2}
    whole = (await bench.post(PATH, body)).json()
    assert whole["choices"][0]["token_ids"] == list(b"he")
    assert whole["prompt_token_ids"][0] == BOS
    chunks = await bench.events(PATH, body)
    assert [i for c in chunks for i in c["choices"][0].get("token_ids", [])] == list(b"he")
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]


async def test_input_ids_bypass_the_template(bench: Bench):
    await bench.post(PATH, {"input_ids": [1, 2, 3]})
    assert bench.engine.requests[0].prompt_ids.tolist() == [1, 2, 3]


async def test_continued_final_message_ends_inside_it(bench: Bench):
    messages = [*HI, {"role": "assistant", "content": "Once"}]
    await bench.post(PATH, {"messages": messages, "continue_final_message": True})
    assert bench.engine.requests[0].prompt_ids == prompt("user:hi|assistant:Once")


async def test_cache_report_can_be_turned_off():
    async with serving(FakeEngine(cached=8), NetSection(cache_report=False)) as bench:
        usage = (await bench.post(PATH, {"messages": HI})).json()["usage"]
        assert usage["prompt_tokens_details"] is None


TIERS = {"cached_tokens_details": {"device": 8, "host": 0, "storage": 0}}


@pytest.mark.parametrize("has_usage", [False, True])
async def test_tiers_of_cached_tokens_come_when_asked_before_usage(bench: Bench, has_usage: bool):
    bench.engine.cached = 8
    body = {"messages": HI, "return_cached_tokens_details": True}
    assert (await bench.post(PATH, body)).json()["sglext"] == TIERS
    chunks = await bench.events(PATH, {**body, "stream_options": {"include_usage": has_usage}})
    (place,) = [
        i for i, chunk in enumerate(chunks) if not chunk["choices"] and "usage" not in chunk
    ]
    assert chunks[place]["sglext"] == TIERS
    assert len(chunks) == place + 1 + has_usage
    assert "sglext" not in (await bench.post(PATH, {"messages": HI})).text


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
async def test_both_names_of_the_output_limit(bench: Bench, limit: str):
    choice = (await bench.post(PATH, {"messages": HI, limit: 3})).json()["choices"][0]
    assert choice["message"]["content"] == "hel"
    assert choice["finish_reason"] == "length"
    assert choice["matched_stop"] is None


async def test_interval_gathers_tokens_after_the_first():
    async with serving(net=NetSection(stream_interval=3)) as bench:
        chunks = await bench.events(PATH, {"messages": HI})
        contents = [c["choices"][0]["delta"].get("content") for c in chunks[1:-1]]
        assert contents == ["h", "ell", "o"]


async def test_null_means_default_for_every_field(bench: Bench):
    names = [field.encode_name for field in msgspec.structs.fields(ChatRequest)]
    names = [name for name in names if name != "messages"]
    response = await bench.post(PATH, {"messages": HI, **dict.fromkeys(names)})
    assert response.status_code == 200, response.text


async def test_a_server_may_tell_the_usage_of_every_stream():
    async with serving(api=ApiSection(usage_chunk=True)) as bench:
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
        last = (await bench.events("/v1/chat/completions", body))[-1]
        assert last["choices"] == [] and last["usage"]["completion_tokens"] == 2
