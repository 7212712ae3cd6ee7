"""One choice: how tokens are gathered into deltas and counted."""

from __future__ import annotations

from array import array

import pytest

from test.serving import byte_tokenizer
from treadle.srt.messages import (
    Finish,
    GenerateRequest,
    RequestId,
    RequestOutput,
    SamplingParams,
    TokenLogprob,
    Usage,
)
from treadle.srt.tokenizer.choice import Choice
from treadle.srt.tokenizer.jobs import ChoiceName, PromptJob
from treadle.srt.tokenizer.trail import TextRules, TextTrail

RID = RequestId("r")


def make(interval: int = 1, stop: tuple[str, ...] = ()) -> Choice:
    request = GenerateRequest(RID, array("i", [1, 2]), SamplingParams(9))
    rules = TextRules(stop=stop)
    name = ChoiceName(PromptJob(request, rules, 1, interval), 0, "r", "r")
    return Choice(name, RID, 0, request, TextTrail(byte_tokenizer(), rules, 0), 0.0)


def output(data: bytes, finish: Finish | None = None) -> RequestOutput:
    logprobs = tuple(TokenLogprob(-float(b)) for b in data)
    return RequestOutput(RID, tuple(data), Usage(2, 99, 1, 1), finish, logprobs)


@pytest.mark.parametrize(
    ("interval", "texts"), [(1, ["a", "b", "c", "d"]), (2, ["a", "bc", "d"]), (0, ["abcd"])]
)
def test_interval_gathers_after_the_first_token(interval: int, texts: list[str]):
    choice = make(interval)
    deltas = [choice.take(output(b)) for b in (b"a", b"b", b"c")]
    deltas.append(choice.take(output(b"d", Finish("length"))))
    shown = [delta for delta in deltas if delta]
    assert [delta.text for delta in shown] == texts
    assert [bool(delta.ending) for delta in shown] == [False] * (len(texts) - 1) + [True]
    assert b"".join(bytes(delta.token_ids) for delta in shown) == b"abcd"
    assert [p.logprob for d in shown for p in d.logprobs if p] == [-97, -98, -99, -100]


def test_tokens_after_a_stop_string_do_not_count():
    delta = make(stop=("b",)).take(output(b"abcd"))
    assert delta is not None
    assert (delta.text, delta.token_ids) == ("a", (97, 98))
    assert len(delta.logprobs) == 2
    assert delta.usage == Usage(2, 2, 1, 1)


def test_outputs_without_tokens_make_no_delta():
    assert make().take(output(b"")) is None


def test_prompt_length_is_known_before_admission():
    choice = make()
    assert choice.usage == Usage(2, 0, 0, 0)
    dead = RequestOutput(RID, (), Usage(0, 0, 0, 0), Finish("abort"))
    delta = choice.take(dead)
    assert delta is not None
    assert delta.usage.prompt_tokens == 2


def test_usage_keeps_the_generation_of_approximations():
    """B34: it is the scheduler's, like the cached tokens."""
    choice = make()
    delta = choice.take(RequestOutput(RID, (97,), Usage(2, 1, 1, 1, approx_generation=3)))
    assert delta is not None
    assert delta.usage == choice.usage == Usage(2, 1, 1, 1, approx_generation=3)
