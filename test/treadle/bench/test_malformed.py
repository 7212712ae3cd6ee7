"""Files of others in another form than they must have."""

from __future__ import annotations

import pytest

from treadle.bench.malformed import MAX_TOKENS, length, told


@pytest.mark.parametrize(
    ("take", "text"),
    [
        (lambda row: row["a"], "x, line 3: no 'a'"),
        (lambda row: row.get("b").c, "x, line 3: not of the expected form .*NoneType"),
        (lambda row: int("z"), "x, line 3: invalid literal"),
        (lambda row: 1 / 0, "x, line 3: not of the expected form"),
    ],
)
def test_what_cannot_be_taken_apart_is_told_with_its_place(take, text: str):
    with pytest.raises(ValueError, match=text), told("x, line 3"):
        take({})


@pytest.mark.parametrize("value", [MAX_TOKENS + 1, 1e300, float("nan")])
def test_a_length_beyond_all_models_is_refused(value: float):
    with pytest.raises(ValueError, match=f"at most {MAX_TOKENS}"):
        length(value)


def test_a_length_is_at_least_one_token():
    assert (length(0.2), length(7.6)) == (1, 8)
