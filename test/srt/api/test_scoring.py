"""Logprobs of prompts in the three spellings, whole and streamed. The engine gives token t of a
prompt -t - 1, so that a value says which token it belongs to.
"""

from __future__ import annotations

from typing import Any

import pytest

from test.serving import BOS, EOS, VOCAB_SIZE, Bench
from treadle.srt.api import scoring

NATIVE, TEXT, CHAT = "/generate", "/v1/completions", "/v1/chat/completions"
ONE = {"max_new_tokens": 1}
AB = [[None, BOS, None], [-98.0, 97, None], [-99.0, 98, None]]


async def native(bench: Bench, **fields: object) -> Any:
    body = {"return_logprob": True, "logprob_start_len": 0, "sampling_params": ONE} | fields
    response = await bench.post(NATIVE, body)
    assert response.status_code == 200, response.text
    return response.json()


async def text(bench: Bench, **fields: object) -> Any:
    response = await bench.post(TEXT, {"max_tokens": 1} | fields)
    assert response.status_code == 200, response.text
    return response.json()["choices"]


async def test_native_inputs_are_triples_and_the_first_is_null(bench: Bench):
    meta = (await native(bench, text="ab"))["meta_info"]
    assert meta["input_token_logprobs"] == AB
    assert meta["output_token_logprobs"] == [[-0.5, 104, None]]
    assert "input_top_logprobs" not in meta
    meta = (await native(bench, text="ab", return_text_in_logprobs=True))["meta_info"]
    assert meta["input_token_logprobs"][0] == [None, BOS, "<bos>"]
    assert meta["input_token_logprobs"][2] == [-99.0, 98, "b"]


@pytest.mark.parametrize(("start", "rows"), [(1, 2), (2, 1), (3, 0)])
async def test_native_inputs_begin_at_their_start(bench: Bench, start: int, rows: int):
    meta = (await native(bench, text="ab", logprob_start_len=start))["meta_info"]
    assert meta["input_token_logprobs"] == AB[3 - rows :]


async def test_native_output_only_has_no_inputs(bench: Bench):
    meta = (await native(bench, text="ab", logprob_start_len=-1))["meta_info"]
    assert "input_token_logprobs" not in meta
    assert bench.engine.requests[0].logprob_start is None


async def test_native_best_and_asked_tokens_of_prompt_and_output(bench: Bench):
    meta = (await native(bench, text="a", top_logprobs_num=2, token_ids_logprob=[7, 3]))[
        "meta_info"
    ]
    assert meta["input_top_logprobs"] == [None, [[-98.0, 97, None], [-99.0, 98, None]]]
    assert meta["input_token_ids_logprobs"] == [None, [[-99.0, 7, None], [-100.0, 3, None]]]
    assert meta["output_token_ids_logprobs"] == [[[-2.0, 7, None], [-3.0, 3, None]]]


async def test_a_prompt_alone_is_scored_without_output(bench: Bench):
    """D12."""
    body = await native(bench, text="ab", sampling_params={"max_new_tokens": 0})
    assert body["text"] == ""
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert body["meta_info"]["input_token_logprobs"] == AB
    assert body["meta_info"]["output_token_logprobs"] == []


async def test_native_stream_has_inputs_in_its_first_and_its_last_event(bench: Bench):
    options = {"max_new_tokens": 4, "ignore_eos": True}
    body = {"text": "ab", "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 1}
    events = await bench.events(NATIVE, {**body, "sampling_params": options})
    having = [i for i, e in enumerate(events) if "input_token_logprobs" in e["meta_info"]]
    assert having == [0, len(events) - 1]
    assert len(events) > 2
    for i in having:
        assert events[i]["meta_info"]["input_token_logprobs"] == AB
        assert len(events[i]["meta_info"]["input_top_logprobs"]) == 3


async def test_whole_answers_score_a_prompt_once_for_all_its_choices(bench: Bench):
    body = await native(bench, text=["ab", "c"], sampling_params={"max_new_tokens": 1, "n": 2})
    assert [request.logprob_start for request in bench.engine.requests] == [0, None, 0, None]
    found = [one["meta_info"]["input_token_logprobs"] for one in body]
    assert found[0] == found[1] == AB
    assert found[2] == found[3] == [[None, BOS, None], [-100.0, 99, None]]


async def test_each_choice_of_a_stream_scores_its_prompt(bench: Bench):
    options = {"max_new_tokens": 1, "n": 2}
    body = {"text": "ab", "return_logprob": True, "logprob_start_len": 0}
    events = await bench.events(NATIVE, {**body, "sampling_params": options})
    assert [request.logprob_start for request in bench.engine.requests] == [0, 0]
    assert all(event["meta_info"]["input_token_logprobs"] == AB for event in events)


async def test_echo_of_an_evaluation(bench: Bench):
    """C6: the form of lm-eval, with ids and one token of output."""
    (choice,) = await text(
        bench, prompt=[BOS, 97, 98], echo=True, logprobs=1, temperature=0, seed=1234
    )
    assert choice["text"] == "abh"
    assert choice["logprobs"] == {
        "tokens": ["<bos>", "a", "b", "h"],
        "token_logprobs": [None, -98.0, -99.0, -0.5],
        "top_logprobs": [None, {"a": -98.0}, {"b": -99.0}, {"h": -0.5}],
        "text_offset": [0, 0, 1, 2],
    }


async def test_echo_of_the_prompt_alone(bench: Bench):
    (choice,) = await text(bench, prompt="ab", echo=True, logprobs=0, max_tokens=0)
    assert choice["text"] == "ab"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"]["tokens"] == ["<bos>", "a", "b"]
    assert choice["logprobs"]["token_logprobs"] == [None, -98.0, -99.0]


async def test_echo_without_logprobs_is_text(bench: Bench):
    choices = await text(bench, prompt=["ab", "c\u00e9"], echo=True, n=2)
    assert [choice["text"] for choice in choices] == ["abh", "abh", "c\u00e9h", "c\u00e9h"]
    assert all(choice["logprobs"] is None for choice in choices)
    assert bench.engine.requests[0].logprob_start is None


async def test_offsets_count_characters_and_specials_that_the_text_shows(bench: Bench):
    (choice,) = await text(bench, prompt="\u00e9<turn>b", echo=True, logprobs=0, max_tokens=2)
    lists = choice["logprobs"]
    assert choice["text"] == "\u00e9<turn>bhe"
    assert lists["tokens"] == ["<bos>", "\ufffd", "\ufffd", "<turn>", "b", "h", "e"]
    assert lists["text_offset"] == [0, 0, 1, 1, 7, 8, 9]


@pytest.mark.parametrize("limit", [0, 3])
async def test_a_stream_echoes_in_a_chunk_of_its_own(bench: Bench, limit: int):
    body = {"prompt": "ab", "echo": True, "logprobs": 1, "max_tokens": limit, "n": 2}
    (whole, _) = await text(bench, **body)
    chunks = [c["choices"][0] for c in await bench.events(TEXT, body)]
    for index in (0, 1):
        mine = [c for c in chunks if c["index"] == index]
        assert mine[0]["text"] == "ab"
        assert "".join(c["text"] for c in mine) == whole["text"]
        for name, values in whole["logprobs"].items():
            assert [x for c in mine if c["logprobs"] for x in c["logprobs"][name]] == values


async def test_prompt_logprobs_of_both_routes_have_ranks_and_texts(bench: Bench):
    (choice,) = await text(bench, prompt="a", prompt_logprobs=2)
    assert choice["logprobs"] is None
    assert choice["prompt_logprobs"] == [
        None,
        {
            "97": {"logprob": -98.0, "rank": 1, "decoded_token": "a"},
            "98": {"logprob": -99.0, "rank": 2, "decoded_token": "b"},
        },
    ]
    chat = {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 0, "max_tokens": 1}
    answer = (await bench.post(CHAT, chat)).json()
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert answer["prompt_logprobs"][0] is None
    assert list(answer["prompt_logprobs"][1]) == [str(ord("u"))]
    assert answer["choices"][0]["logprobs"] is None


async def test_each_list_has_as_many_best_tokens_as_it_was_asked_for(bench: Bench):
    (choice,) = await text(bench, prompt="a", prompt_logprobs=1, logprobs=3, echo=True)
    assert len(choice["prompt_logprobs"][1]) == 1
    assert [top and len(top) for top in choice["logprobs"]["top_logprobs"]] == [None, 3, 3]
    (choice,) = await text(bench, prompt="a", prompt_logprobs=3, logprobs=1)
    assert len(choice["prompt_logprobs"][1]) == 3
    assert [len(top) for top in choice["logprobs"]["top_logprobs"]] == [1]


@pytest.mark.parametrize("value", [None, False])
async def test_no_prompt_logprobs_unless_asked(bench: Bench, value: object):
    (choice,) = await text(bench, prompt="a", prompt_logprobs=value)
    assert "prompt_logprobs" not in choice


IDS, START = "token_ids_logprob", "logprob_start_len"
BAD = [
    (NATIVE, {"text": "ab", START: 4}, "at most the prompt's length, 3", START),
    (NATIVE, {"text": "ab", START: -2}, "-1 (output only)", START),
    (NATIVE, {"text": "ab", IDS: [VOCAB_SIZE]}, "outside the vocabulary", IDS),
    (NATIVE, {"text": "ab", IDS: [-1]}, "outside the vocabulary", IDS),
    (NATIVE, {"text": "ab", IDS: [1] * 129}, "at most 128 ids", IDS),
    (NATIVE, {"text": "ab", "top_logprobs_num": 129}, "at most 128", "top_logprobs_num"),
    (NATIVE, {"text": "a", "sampling_params": {"logit_bias": {"5": 1e31}}}, "1e+30",
     "sampling_params.logit_bias"),
    ("/v1/embeddings", {"input": "a"}, "no embeddings", "model"),
    (TEXT, {"prompt": "a", "prompt_logprobs": 21}, "at most 20", "prompt_logprobs"),
    (TEXT, {"prompt": "a", "prompt_logprobs": -1}, "at least 0", "prompt_logprobs"),
    (TEXT, {"prompt": "a", "prompt_logprobs": 1, "stream": True}, "streamed", "prompt_logprobs"),
    (TEXT, {"prompt": "a", "logprobs": 21, "echo": True}, "at most 20", "logprobs"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "words", "param"), BAD)
async def test_what_cannot_be_is_refused(
    bench: Bench, path: str, fields: dict[str, Any], words: str, param: str
):
    response = await bench.post(path, {"return_logprob": True} | fields)
    assert response.status_code == 400, response.text
    assert words in response.json()["message"]
    assert response.json()["param"] == param
    assert bench.engine.requests == []


async def test_more_numbers_than_an_answer_holds_are_refused(bench: Bench, monkeypatch):
    monkeypatch.setattr(scoring, "MAX_NUMBERS", 3 * 4)
    await native(bench, text="ab", top_logprobs_num=3)
    body = {"text": ["ab", "c"], "return_logprob": True, "logprob_start_len": 0}
    response = await bench.post(NATIVE, body | {"top_logprobs_num": 3})
    assert response.status_code == 400
    assert "asks for 20 logprobs" in response.json()["message"]


async def test_long_lists_are_spelled_beside_the_loop(bench: Bench, monkeypatch):
    monkeypatch.setattr(scoring, "INLINE_TOKENS", 0)
    assert (await native(bench, text="ab"))["meta_info"]["input_token_logprobs"] == AB
    (choice,) = await text(bench, prompt="ab", echo=True, logprobs=0)
    assert choice["logprobs"]["token_logprobs"] == [None, -98.0, -99.0, -0.5]
    assert EOS not in bench.engine.requests[0].prompt_ids
