"""/generate: whole answers, batches, names, logprobs, stops."""

from __future__ import annotations

import asyncio

from test.serving import EOS, Bench, hold

PATH = "/generate"


async def test_answer_is_text_ids_and_meta(bench: Bench):
    bench.engine.cached, bench.engine.replayed = 16, 3
    body = (await bench.post(PATH, {"text": "a", "rid": "r"})).json()
    assert body["text"] == "hello"
    assert body["output_ids"] == [*b"hello", EOS]
    meta = body["meta_info"]
    assert meta["id"] == "r"
    assert meta["finish_reason"] == {"type": "stop", "matched": EOS}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (2, 6)
    assert meta["cached_tokens"] == 16
    assert meta["cached_tokens_details"] == {"device": 16, "host": 0, "storage": 0}
    assert meta["replayed_tokens"] == 3
    assert meta["approx_generation"] == 0
    assert meta["weight_version"] == "default"
    assert meta["e2e_latency"] >= meta["first_token_latency"] >= 0


async def test_put_is_the_same(bench: Bench):
    response = await bench.client.put(PATH, json={"text": "a"})
    assert response.json()["text"] == "hello"


async def test_default_limit_is_128_null_is_the_context(bench: Bench):
    for options in ({"ignore_eos": True}, {"ignore_eos": True, "max_new_tokens": None}):
        await bench.post(PATH, {"input_ids": [1], "sampling_params": options})
    await bench.post(PATH, {"input_ids": [1] * 150, "sampling_params": options})
    assert [r.sampling.max_new_tokens for r in bench.engine.requests] == [128, 199, 50]


async def test_list_in_is_list_out_in_order(bench: Bench):
    assert isinstance((await bench.post(PATH, {"text": ["a"]})).json(), list)
    body = {"input_ids": [[1], [2, 3]], "rid": ["x", "y"]}
    answers = (await bench.post(PATH, body)).json()
    assert [answer["meta_info"]["id"] for answer in answers] == ["x", "y"]
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [1, 2]


async def test_choices_are_prompt_major_and_named_exactly(bench: Bench):
    body = {"text": ["a", "b"], "rid": ["x", "y"], "sampling_params": {"n": 2}}
    answers = (await bench.post(PATH, body)).json()
    assert [a["meta_info"]["id"] for a in answers] == ["x-0", "x-1", "y-0", "y-1"]
    named = {"text": "a", "rid": "z", "sampling_params": {"n": 2}}
    answers = (await bench.post(PATH, named)).json()
    assert [a["meta_info"]["id"] for a in answers] == ["z-0", "z-1"]


async def test_fields_of_a_batch_are_spread_or_per_prompt(bench: Bench):
    body = {
        "text": ["a", "b"],
        "sampling_params": [{"max_new_tokens": 1}, {"max_new_tokens": 2}],
        "return_logprob": [True, False],
        "top_logprobs_num": 3,
        "extra_key": ["k", ""],
        "cache_salt": "s",
    }
    answers = (await bench.post(PATH, body)).json()
    assert [len(a["output_ids"]) for a in answers] == [1, 2]
    assert [r.top_logprobs for r in bench.engine.requests] == [3, None]
    spaces = [r.namespace for r in bench.engine.requests]
    assert spaces == [(("salt", "s"), ("extra", "k")), (("salt", "s"),)]


async def test_number_of_choices_must_be_the_same_in_a_batch(bench: Bench):
    body = {"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}
    response = await bench.post(PATH, body)
    assert response.status_code == 400
    assert response.json()["param"] == "sampling_params.n"


async def test_logprobs_are_triples(bench: Bench):
    body = {"text": "a", "return_logprob": True, "top_logprobs_num": 2,
            "sampling_params": {"max_new_tokens": 2}}  # fmt: skip
    meta = (await bench.post(PATH, body)).json()["meta_info"]
    assert meta["output_token_logprobs"] == [[-0.5, 104, None], [-0.5, 101, None]]
    assert meta["output_top_logprobs"][0] == [[-0.5, 104, None], [-1.5, 105, None]]
    body["return_text_in_logprobs"] = True
    meta = (await bench.post(PATH, body)).json()["meta_info"]
    assert meta["output_token_logprobs"] == [[-0.5, 104, "h"], [-0.5, 101, "e"]]


async def test_stop_strings_ids_and_trimming(bench: Bench):
    base = {"text": "a"}
    stop = {"sampling_params": {"stop": "ell"}}
    body = (await bench.post(PATH, {**base, **stop})).json()
    assert body["text"] == "h"
    assert body["output_ids"] == list(b"hell")
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": "ell"}
    by_id = {"sampling_params": {"stop_token_ids": [ord("l")]}}
    body = (await bench.post(PATH, {**base, **by_id})).json()
    assert body["text"] == "he"
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": ord("l")}
    kept = {"sampling_params": {"stop_token_ids": [ord("l")], "no_stop_trim": True}}
    assert (await bench.post(PATH, {**base, **kept})).json()["text"] == "hel"


async def test_special_tokens_are_shown_when_asked(bench: Bench):
    body = {"text": "a", "sampling_params": {"skip_special_tokens": False, "no_stop_trim": True}}
    assert (await bench.post(PATH, body)).json()["text"] == "hello<eos>"


async def test_user_abort_ends_with_200_and_the_users_message(bench: Bench):
    bench.engine.script = hold
    asking = asyncio.create_task(bench.post(PATH, {"text": "a", "rid": "r"}))
    while not bench.engine.live:
        await asyncio.sleep(0)
    bench.engine.emit("r", b"he")
    await bench.post("/abort_request", {"rid": "r", "abort_message": "enough"})
    response = await asking
    assert response.status_code == 200
    body = response.json()
    assert body["text"] == "he"
    assert body["meta_info"]["finish_reason"]["type"] == "abort"
    assert body["meta_info"]["finish_reason"]["message"] == "enough"
