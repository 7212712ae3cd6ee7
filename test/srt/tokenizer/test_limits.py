"""Lengths and ids that are refused, and the words for it."""

from __future__ import annotations

import pytest

from treadle.srt.errors import BadRequest, TooLong
from treadle.srt.tokenizer.limits import Limits, OutputCap

LIMITS = Limits(context_len=10, vocab_size=5)


def test_ids_of_the_vocabulary_pass():
    assert LIMITS.check_ids([0, 4], "p").tolist() == [0, 4]


@pytest.mark.parametrize("ids", [[5], [-1], [0, 10**30], [-(10**30)]])
def test_ids_outside_are_named(ids: list[int]):
    with pytest.raises(BadRequest, match=r"outside the vocabulary \[0, 5\)") as caught:
        LIMITS.check_ids(ids, "p")
    assert caught.value.param == "p"


def test_prompt_must_leave_room_for_a_token():
    LIMITS.check_prompt_len(9, "p")
    with pytest.raises(TooLong, match="10 tokens, but the model's context length is 10") as caught:
        LIMITS.check_prompt_len(10, "p")
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(BadRequest, match="must not be empty"):
        LIMITS.check_prompt_len(0, "p")


@pytest.mark.parametrize(
    ("asked", "is_strict", "got"), [(None, False, 4), (3, True, 3), (4, True, 4), (9, False, 4)]
)
def test_output_fits_the_context(asked: int | None, is_strict: bool, got: int):
    assert LIMITS.output_tokens(6, OutputCap(asked, is_strict, "max")) == got


def test_asked_output_beyond_the_context_is_refused_with_the_counts():
    words = "has 6 tokens and max asks for 5 more, together 11, .* context length is 10"
    with pytest.raises(TooLong, match=words) as caught:
        LIMITS.output_tokens(6, OutputCap(5, True, "max"))
    assert caught.value.param == "max"
