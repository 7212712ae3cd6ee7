"""Bodies that are sent and events that are read: completions, chats, embeddings."""

from __future__ import annotations

from array import array

import pytest

from treadle.bench.asks import Ask, Event, Message, Options, Tiers
from treadle.bench.wires import WIRES

IDS = array("i", [5, 6])


def test_an_embedding_is_an_answer_without_tokens():
    wire = WIRES["sglang-embedding"]
    assert wire.body(Ask("a b", 9), Options("m")) == {"model": "m", "input": "a b"}
    assert wire.body(Ask(IDS, 9), Options("m"))["input"] == [5, 6]
    data = {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 2}}
    said = wire.read([Event(0.25, data)])
    assert (said.arrivals, said.prompt_tokens, said.output_tokens) == (((0.25, 0),), 2, 0)
    with pytest.raises(ValueError, match="logprobs"):
        wire.body(Ask("a", 1), Options("m", top_logprobs=0))
    with pytest.raises(TypeError, match="empty"):
        wire.read([Event(0.25, {"data": [{"embedding": []}]})])


def test_logprobs_are_asked_for_in_each_routes_words():
    options = Options("m", top_logprobs=2)
    assert WIRES["openai"].body(Ask("a", 1), options)["logprobs"] == 2
    body = WIRES["openai-chat"].body(Ask((Message("user", "a"),), 1), options)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)


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
