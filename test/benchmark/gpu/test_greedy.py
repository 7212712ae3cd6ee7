"""Where two answers may differ, and what is asked."""

from __future__ import annotations

from benchmark.gpu.greedy import PROMPTS, Answer, Difference, differences, prompts


def test_the_first_difference_counts_with_the_gap_of_the_reference():
    want = {
        "cold": [Answer([1, 2, 3], [0.5, 0.25, 9.0]), Answer([4, 5, 6], [1.0, 1.0, 1.0])],
        "warm": [Answer([1, 2, 3], [0.5, 0.25, 9.0]), Answer([4, 5, 6], [1.0, 1.0, 1.0])],
    }
    got = {
        "cold": [Answer([1, 7, 8], [0.0, 0.0, 0.0]), Answer([4, 5, 6], [0.0, 0.0, 0.0])],
        "warm": [Answer([1, 2, 3], [0.0, 0.0, 0.0]), Answer([4, 5, 9], [0.0, 0.0, 0.0])],
    }
    assert differences(got, want) == [
        Difference(0, "cold", 1, 0.25),
        Difference(1, "warm", 2, 1.0),
    ]
    assert not differences(want, want)


def test_twenty_prompts_some_longer_than_a_window():
    asked = prompts()
    assert len(set(asked)) == len(PROMPTS) == 20
    assert sum(len(text) > 2000 for text in asked) == 4
