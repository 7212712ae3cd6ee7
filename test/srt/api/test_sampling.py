"""Defaults, ranges and spelling of sampling fields."""

from __future__ import annotations

import pytest

from treadle.srt.api.sampling import (
    CHAT,
    CHAT_NEW,
    COMPLETION,
    NATIVE,
    SamplingDefaults,
    SamplingReader,
    from_openai,
    top_logprobs,
)
from treadle.srt.api.schema import ChatRequest, SamplingFields
from treadle.srt.errors import BadRequest
from treadle.srt.tokenizer.limits import Limits

LIMITS = Limits(context_len=100, vocab_size=50)
READER = SamplingReader(SamplingDefaults(), LIMITS, (7, 8))


def test_request_wins_over_the_models_defaults_over_openais():
    model = SamplingDefaults(
        temperature=0.6, top_p=0.9, top_k=20, min_p=0.05, repetition_penalty=1.1
    )
    reader = SamplingReader(model, LIMITS, ())
    plain = reader.read(SamplingFields(), NATIVE).params
    assert (plain.temperature, plain.top_p, plain.top_k) == (0.6, 0.9, 20)
    assert (plain.min_p, plain.repetition_penalty) == (0.05, 1.1)
    asked = reader.read(SamplingFields(temperature=0, top_k=-1), NATIVE).params
    assert (asked.temperature, asked.top_p, asked.top_k) == (0, 0.9, -1)
    base = READER.read(SamplingFields(), NATIVE).params
    assert (base.temperature, base.top_p, base.top_k, base.min_p) == (1.0, 1.0, -1, 0.0)


def test_stop_ids_are_the_requests_and_the_models_unless_ignored():
    assert READER.read(SamplingFields(), NATIVE).params.stop_token_ids == (7, 8)
    asked = SamplingFields(stop_token_ids=[3, 7])
    assert READER.read(asked, NATIVE).params.stop_token_ids == (3, 7, 8)
    ignoring = SamplingFields(stop_token_ids=[3], ignore_eos=True)
    assert READER.read(ignoring, NATIVE).params.stop_token_ids == (3,)


def test_top_k_zero_is_off_for_openai_clients_only():
    assert READER.read(SamplingFields(top_k=0), CHAT).params.top_k == -1
    with pytest.raises(BadRequest):
        READER.read(SamplingFields(top_k=0), NATIVE)
    assert READER.read(SamplingFields(top_k=10**12), NATIVE).params.top_k == 50


def test_bias_is_clamped_for_openai_clients_only():
    fields = SamplingFields(logit_bias={"3": -500.0, "4": 5.0})
    assert READER.read(fields, CHAT).params.logit_bias == ((3, -100.0), (4, 5.0))
    assert READER.read(fields, NATIVE).params.logit_bias == ((3, -500.0), (4, 5.0))


def test_caps_differ_by_route_and_by_null():
    assert READER.read(SamplingFields(), NATIVE).cap.tokens == 128
    assert READER.read(SamplingFields(), COMPLETION).cap.tokens == 16
    assert READER.read(SamplingFields(), CHAT).cap.tokens is None
    null = READER.read(SamplingFields(max_new_tokens=None), NATIVE).cap
    assert (null.tokens, null.is_strict) == (None, False)
    asked = READER.read(SamplingFields(max_new_tokens=0), NATIVE).cap
    assert (asked.tokens, asked.is_strict) == (0, True)


def test_newer_name_of_the_output_limit_wins_and_is_named_in_errors():
    body = ChatRequest(max_tokens=5, max_completion_tokens=9)
    assert READER.read(from_openai(body), CHAT_NEW).cap.tokens == 9
    with pytest.raises(BadRequest, match="max_completion_tokens must be at least 0"):
        READER.read(from_openai(ChatRequest(max_completion_tokens=-1)), CHAT_NEW)


def test_empty_and_repeated_stop_strings_are_dropped():
    rules = READER.read(SamplingFields(stop=["a", "", "a"]), NATIVE).rules
    assert rules.stop == ("a",)
    assert READER.read(SamplingFields(stop=""), NATIVE).rules.stop == ()


@pytest.mark.parametrize("value", [0, 1e-9, 5.0, 1e300])
def test_any_finite_temperature_from_zero_passes(value: float):
    assert READER.read(SamplingFields(temperature=value), NATIVE).params.temperature == value


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1])
def test_seeds_of_64_bits_pass(value: int):
    assert READER.read(SamplingFields(sampling_seed=value), NATIVE).params.seed == value


@pytest.mark.parametrize("value", [None, 0, 20])
def test_top_logprobs_in_range_pass(value: int | None):
    assert top_logprobs(value, "x") == value


@pytest.mark.parametrize("value", [-1, 21, 10**30])
def test_top_logprobs_out_of_range_are_named(value: int):
    with pytest.raises(BadRequest, match="x must be at least 0 and at most 20"):
        top_logprobs(value, "x")
