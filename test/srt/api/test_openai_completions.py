"""/v1/completions: forms of prompts, chunks, logprobs."""

from __future__ import annotations

from test.serving import EOS, Bench

PATH = "/v1/completions"


async def test_default_is_sixteen_tokens_of_text(bench: Bench):
    body = (await bench.post(PATH, {"prompt": "a", "ignore_eos": True})).json()
    assert body["object"] == "text_completion"
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["text"] == "hellohellohell"


async def test_default_limit_is_cut_to_the_context(bench: Bench):
    body = (await bench.post(PATH, {"prompt": "x" * 195, "ignore_eos": True})).json()
    assert body["usage"]["completion_tokens"] == 4


async def test_prompts_of_every_form_are_answered_in_order(bench: Bench):
    for prompt, count in (("ab", 1), (["ab", "c"], 2), ([1, 2], 1), ([[1], [2, 3], [4]], 3)):
        bench.engine.sent.clear()
        body = (await bench.post(PATH, {"prompt": prompt})).json()
        assert [choice["index"] for choice in body["choices"]] == list(range(count))
        sizes = [len(request.prompt_ids) for request in bench.engine.requests]
        assert body["usage"]["prompt_tokens"] == sum(sizes)
    assert [r.prompt_ids.tolist() for r in bench.engine.requests] == [[1], [2, 3], [4]]


async def test_choices_are_prompt_major(bench: Bench):
    body = (await bench.post(PATH, {"prompt": ["a", "bb"], "n": 2, "best_of": 2})).json()
    assert len(body["choices"]) == 4
    assert [len(r.prompt_ids) for r in bench.engine.requests] == [2, 2, 3, 3]
    assert body["usage"]["prompt_tokens"] == 5
    assert body["usage"]["completion_tokens"] == 24


async def test_every_chunk_has_a_choice_but_the_usage_chunk(bench: Bench):
    options = {"include_usage": True}
    chunks = await bench.events(PATH, {"prompt": ["a", "b"], "stream_options": options})
    assert all(len(chunk["choices"]) == 1 for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    for index in (0, 1):
        own = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == "hello"
        assert own[-1]["finish_reason"] == "stop"
        assert own[-1]["matched_stop"] == EOS


async def test_tiers_of_cached_tokens_are_of_all_prompts(bench: Bench):
    bench.engine.cached = 1
    body = {"prompt": ["a", "b"], "return_cached_tokens_details": True}
    tiers = {"cached_tokens_details": {"device": 2, "host": 0, "storage": 0}}
    assert (await bench.post(PATH, body)).json()["sglext"] == tiers
    last = (await bench.events(PATH, body))[-1]
    assert (last["choices"], last["sglext"]) == ([], tiers)


async def test_logprobs_have_offsets_into_the_text(bench: Bench):
    body = {"prompt": "a", "logprobs": 2, "max_tokens": 3}
    whole = (await bench.post(PATH, body)).json()["choices"][0]["logprobs"]
    assert whole["tokens"] == ["h", "e", "l"]
    assert whole["token_logprobs"] == [-0.5, -0.5, -0.5]
    assert whole["top_logprobs"][0] == {"h": -0.5, "i": -1.5}
    assert whole["text_offset"] == [0, 1, 2]
    chunks = await bench.events(PATH, body)
    parts = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [offset for part in parts for offset in part["text_offset"]] == [0, 1, 2]


async def test_zero_tokens_only_prefill(bench: Bench):
    body = (await bench.post(PATH, {"prompt": "a", "max_tokens": 0})).json()
    assert body["choices"][0]["text"] == ""
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 0
    chunks = await bench.events(PATH, {"prompt": "a", "max_tokens": 0})
    assert [c["choices"][0]["finish_reason"] for c in chunks] == ["length"]


async def test_token_ids_on_request(bench: Bench):
    body = {"prompt": [7, 8], "return_token_ids": True, "max_tokens": 2}
    choice = (await bench.post(PATH, body)).json()["choices"][0]
    assert choice["token_ids"] == list(b"he")
    assert choice["prompt_token_ids"] == [7, 8]


async def test_mixed_prompt_list_is_refused(bench: Bench):
    response = await bench.post(PATH, {"prompt": ["a", 1]})
    assert response.status_code == 400
    assert response.json()["param"] == "prompt[1]"
