"""Prompts of agent sessions, and what is told of their answers."""

from __future__ import annotations

from array import array

import pytest
from benchmark.gpu.agents import Player, chosen, figures, in_vocabulary

from treadle.bench.asks import Answer, Reading
from treadle.bench.traces import Session, Speller, Turn

TURNS = (
    Turn(0.0, 6, 2, -1, 0, 0, ((0, 0, 8),)),
    Turn(1.0, 12, 3, 0, 8, 1, ((0, 0, 8), (1, 8, 15))),
    Turn(2.0, 9, 1, 0, 4, 2, ((0, 0, 4), (2, 4, 10))),
)


def player() -> Player:
    return Player(Session("s", TURNS), 3, Speller())


def test_a_prompt_goes_on_from_what_was_really_generated():
    one = player()
    first = one.prompt(0)
    assert len(first) == 6
    one.texts.append(first + array("i", [7001, 7002]))
    second = one.prompt(1)
    assert len(second) == 12 and second[:8] == one.texts[0]
    one.texts.append(second + array("i", [1, 2, 3]))
    third = one.prompt(2)
    assert len(third) == 9 and third[:4] == first[:4] and third[4:6] != first[4:6]


def test_sessions_of_their_own_share_nothing():
    speller = Speller()
    a, b = (Player(Session("s", TURNS), n, speller).prompt(0) for n in (0, 1))
    assert a[0] != b[0]
    assert player().prompt(0) == player().prompt(0)


def test_ids_are_those_of_the_tokenizer():
    spelled = array("i", [0, 1, 2**31 - 1, -5, 1])
    ids = in_vocabulary(spelled)
    assert all(0 <= x < 8192 for x in ids) and ids[1] == ids[4]
    assert len(set(in_vocabulary(array("i", range(4096))))) > 3000


def test_sessions_too_long_for_the_context_are_left_out():
    long = Session("l", (Turn(0.0, 20000, 1, -1, 0, 0, ((0, 0, 20001),)),))
    short = Session("s", TURNS)
    assert {x.key for x in chosen([long, short])} == {"s"} and len(chosen([long, short])) == 64


def test_interactivity_is_tokens_per_second_after_the_first():
    answers = [
        Answer(0.0, 10, Reading(((0.5, 1), (0.5 + 2 * n, 2)), "", (1, 2, 3), 10, 3, cached=4))
        for n in range(1, 11)
    ]
    found = figures(answers, 20.0)
    assert found["output_tokens_per_s"] == 1.5 and found["hit_rate"] == 0.4
    assert found["ttft_p50_ms"] == 500
    assert found["interactivity_p90"] < found["interactivity_p50"] == pytest.approx(11 / 60)
