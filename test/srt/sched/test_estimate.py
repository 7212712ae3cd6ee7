"""NewTokenEstimate: bounds, decay and the jump after a preemption (T24, T46)."""

from __future__ import annotations

from types import SimpleNamespace

from treadle.srt.sched.estimate import INITIAL, LOWEST, MOST_TOKENS, NewTokenEstimate
from treadle.srt.sched.request import Request


def request(known: int, max_known: int, num_output: int = 0) -> Request:
    fields = {"known": known, "max_known": max_known, "num_output": num_output}
    return SimpleNamespace(**fields, prompt_len=known - num_output)  # type: ignore[return-value]


def test_it_expects_a_share_of_what_is_left():
    estimate = NewTokenEstimate(1.0)
    assert estimate.tokens(request(100, 201)) == 1 + int(100 * INITIAL)


def test_it_expects_at_least_one_token_and_at_most_those_left():
    careless, careful = NewTokenEstimate(1e-9), NewTokenEstimate(9.0)
    assert careless.tokens(request(100, 200)) == 1
    assert careful.tokens(request(100, 200)) == 99
    assert careful.tokens(request(100, 100)) == 0  # nothing is sampled
    assert careful.tokens(request(100, 101)) == 0  # the last token is not run


def test_huge_limits_count_as_less():
    assert NewTokenEstimate(9.0).tokens(request(10, 1 << 20)) == MOST_TOKENS


def test_it_falls_to_its_lowest_and_stays():
    estimate = NewTokenEstimate(1.0)
    for _ in range(700):
        before = estimate.ratio
        estimate.decay()
        assert estimate.ratio <= before
    assert estimate.ratio == LOWEST


def test_a_preemption_raises_it_and_it_falls_again():
    estimate = NewTokenEstimate(1.0)
    for _ in range(700):
        estimate.decay()
    estimate.preempted([request(120, 200, 20)])
    raised = estimate.ratio
    assert INITIAL <= raised <= 1.0
    estimate.decay()
    assert estimate.ratio < raised


def test_long_outputs_raise_it_further():
    estimate = NewTokenEstimate(1.0)
    estimate.preempted([request(190, 200, 90)])
    assert estimate.ratio == 1.0
