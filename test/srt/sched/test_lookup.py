"""What is looked up in a request's own tokens in place of unsure drafts."""

from __future__ import annotations

import random
from array import array

import pytest

from treadle.srt.sched.lookup import MAX_MATCH, MAX_PLACES, REACH, with_lookup


def look(tokens: list[int], drafts: list[int], num_sure: int = 0) -> list[int]:
    return list(with_lookup(array("i", tokens), drafts, num_sure))


def naive(tokens: list[int], drafts: list[int], num_sure: int) -> list[int]:
    """The same by comparing every place in full."""
    known = [*tokens, *drafts[:num_sure]]
    best, best_len = len(known), 0
    for end in range(len(known) - 1, 0, -1):
        length = 0
        while length < min(end, MAX_MATCH) and known[end - 1 - length] == known[-1 - length]:
            length += 1
        if length > best_len:
            best, best_len = end, length
    out = [*drafts[:num_sure], *known[best : best + len(drafts) - num_sure]]
    return [*out, *drafts[len(out) :]]


def test_what_followed_the_same_tokens_replaces_unsure_drafts():
    assert look([1, 2, 3, 4, 5, 6, 1, 2, 3], [0, 0, 0]) == [4, 5, 6]


def test_sure_drafts_stay_and_are_looked_up_from():
    assert look([1, 2, 3, 4, 5, 6, 9, 2], [3, 0, 0], 1) == [3, 4, 5]
    assert look([1, 2, 3, 4, 5, 6, 9, 2], [7, 8, 0], 3) == [7, 8, 0]


def test_drafts_stay_where_nothing_came_before():
    assert look([1, 2, 3], [8, 9]) == [8, 9]
    assert look([1, 2, 3, 1], [7, 8, 9, 6, 5]) == [2, 3, 1, 6, 5]  # and where it ends
    assert look([5], [8, 9]) == [8, 9]


def test_longest_match_wins_and_then_the_newest():
    assert look([1, 2, 3, 70, 9, 2, 3, 80, 1, 2, 3], [0]) == [70]
    assert look([2, 3, 70, 2, 3, 80, 2, 3], [0]) == [80]


def test_bytes_of_neighbours_are_no_match():
    """The bytes of 256 are in those of 1, 0 as well, one byte further on."""
    assert look([1 << 16, 7, 1], [9]) == [9]
    assert look([0, 1, 0, 0, 256], [9]) == [9]


@pytest.mark.parametrize("seed", range(200))
def test_equals_a_comparison_of_every_place(seed: int):
    rng = random.Random(seed)
    tokens = rng.choices(range(rng.choice([2, 4, 30])), k=rng.randint(1, MAX_PLACES))
    drafts = rng.choices(range(4), k=rng.randint(1, 5))
    num_sure = rng.randint(0, len(drafts))
    assert look(tokens, drafts, num_sure) == naive(tokens, drafts, num_sure)


def test_search_is_bounded_in_reach_and_in_places():
    far = [1, 2, 3, *([0] * REACH), 1, 2]
    assert look(far, [9]) == [9]
    many = [5, 1, 2, *([9, 1] * (MAX_PLACES + 1)), 5, 1]
    assert look(many, [7]) == [5]  # after the newest 1, not after the 5, 1 further back
