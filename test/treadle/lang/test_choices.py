"""Methods of selection on numbers worked out by hand."""

from __future__ import annotations

import pytest

from treadle.client.errors import ProgramError
from treadle.lang.choices import (
    ChoiceScore,
    choices_method,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)


def score(ids: list[int], logprobs: list[float], alone: list[float | None] | None = None):
    return ChoiceScore(tuple(ids), tuple(logprobs), tuple(alone or ()))


def test_the_mean_and_not_the_sum_decides():
    scores = [score([1], [-1.0]), score([2, 3, 4], [-0.5, -0.6, -0.7])]
    assert token_length_normalized.pick(scores) == 1


def test_greedy_looks_at_tokens_in_order():
    """The second begins better and is worse on the whole."""
    scores = [score([1, 3], [-1.0, -0.1]), score([2, 4], [-0.9, -5.0])]
    assert token_length_normalized.pick(scores) == 0
    assert greedy_token_selection.pick(scores) == 1


def test_greedy_compares_later_tokens_of_choices_that_begin_alike():
    """Values of the shared token may differ by rounding; its id tells that it is the same."""
    scores = [score([1, 3], [-1.0, -2.0]), score([1, 4], [-1.0000001, -0.5]), score([2], [-1.5])]
    assert greedy_token_selection.pick(scores) == 1


def test_a_choice_that_has_ended_goes_on_with_its_mean():
    short, long = score([1], [-1.0]), score([1, 2], [-1.0, -1.2])
    assert greedy_token_selection.pick([short, long]) == 0
    assert greedy_token_selection.pick([short, score([1, 2], [-1.0, -0.8])]) == 1


def test_what_is_likely_anyway_counts_less():
    """The first token has no unconditional value, and counts in full."""
    scores = [
        score([1, 2], [-1.0, -0.5], [None, -0.6]),
        score([3, 4], [-1.0, -1.0], [None, -4.0]),
    ]
    assert token_length_normalized.pick(scores) == 0
    assert unconditional_likelihood_normalized.pick(scores) == 1


def test_the_first_of_equals_wins():
    scores = [score([1], [-1.0]), score([2], [-1.0])]
    assert token_length_normalized.pick(scores) == greedy_token_selection.pick(scores) == 0


def test_methods_have_names():
    assert choices_method(None) is token_length_normalized
    assert choices_method("greedy_token_selection") is greedy_token_selection
    with pytest.raises(ProgramError, match="choices_method must be one of token_length"):
        choices_method("best")
