"""Bodies that are sent and events that are read, by backend."""

from __future__ import annotations

from array import array

import pytest

from treadle.bench.asks import Ask, Event, Message, Options, Tiers
from treadle.bench.wires import CHAT_OF, WIRES

IDS = array("i", [5, 6])


@pytest.mark.parametrize("name", list(WIRES))
def test_a_prompt_of_a_kind_that_the_route_lacks_is_refused(name: str):
    wire = WIRES[name]
    bad = IDS if wire.is_chat else (Message("user", "a"),)
    with pytest.raises(ValueError, match="messages"):
        wire.body(Ask(bad, 1), Options("m"))
    assert name in CHAT_OF or wire.is_chat or name == "sglang-embedding"


def test_an_embedding_is_an_answer_without_tokens():
    wire = WIRES["sglang-embedding"]
    assert wire.body(Ask("a b", 9), Options("m")) == {"model": "m", "input": "a b"}
    assert wire.body(Ask(IDS, 9), Options("m"))["input"] == [5, 6]
    data = {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 2}}
    said = wire.read([Event(0.25, data)])
    assert (said.arrivals, said.prompt_tokens, said.output_tokens) == (((0.25, 0),), 2, 0)
    with pytest.raises(ValueError, match="logprobs"):
        wire.body(Ask("a", 1), Options("m", top_logprobs=0))


def test_llama_refuses_what_it_would_ignore():
    for options in (Options("m", top_logprobs=1), Options("m", lora="a")):
        with pytest.raises(ValueError, match=r"llama\.cpp"):
            WIRES["llama.cpp"].body(Ask(IDS, 1), options)
    sampled = WIRES["llama.cpp"].body(Ask(IDS, 1), Options("m", temperature=0.5))
    assert sampled["temperature"] == 0.5 and "samplers" not in sampled


def test_tokens_that_come_together_share_the_gap_before_them():
    meta = {"prompt_tokens": 8, "cached_tokens": 6, "replayed_tokens": 2}
    events = [
        Event(at_s, {"text": "", "meta_info": {**meta, "completion_tokens": n}})
        for at_s, n in ((1.0, 1), (1.5, 1), (2.0, 3), (3.0, 5))
    ]
    said = WIRES["sglang"].read(events)
    assert said.arrivals == ((1.0, 1), (2.0, 2), (3.0, 2))
    assert said.rows == 8 - 6 + 2


@pytest.mark.parametrize("name", list(WIRES))
def test_only_servers_that_know_the_field_are_asked_for_tiers(name: str):
    wire = WIRES[name]
    prompt = (Message("user", "a"),) if wire.is_chat else IDS
    body = wire.body(Ask(prompt, 1), Options("m", wants_tiers=True))
    assert ("return_cached_tokens_details" in body) == name.startswith("sglang-oai")


def test_tiers_tell_what_was_cached_where_usage_does_not():
    told = {"cached_tokens_details": {"device": 3, "host": 2}}
    events = [
        Event(0.5, {"choices": [{"delta": {"content": "a"}}]}),
        Event(0.6, {"choices": [], "sglext": told}),
        Event(0.6, {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}),
    ]
    said = WIRES["sglang-oai-chat"].read(events)
    assert (said.cached, said.prompt_tokens, said.tiers) == (5, 9, Tiers(3, 2, 0, None))


def test_chat_counts_reasoning_and_calls_as_tokens():
    deltas = [{"role": "assistant"}, {"content": "a"}, {"reasoning": "b"}, {"tool_calls": [{}]}]
    events = [Event(float(i), {"choices": [{"delta": d}]}) for i, d in enumerate(deltas)]
    said = WIRES["openai-chat"].read(events)
    assert said.text == "a" and [at_s for at_s, _ in said.arrivals] == [1, 2, 3]
    assert said.output_tokens == 3 and said.cached is None and said.rows is None
