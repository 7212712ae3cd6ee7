"""Made-up load: lengths, shared prefixes, turns."""

from __future__ import annotations

import random
from array import array
from collections import Counter

import pytest

from treadle.bench.asks import Message, Reading, extended
from treadle.bench.conversations import (
    RandomLoad,
    SharedLoad,
    as_messages,
    random_load,
    shared_load,
    total_turns,
)
from treadle.bench.vocabulary import Vocabulary

WORDS = Vocabulary(("a", "b", "c", "d"), (11, 12, 13, 14), (1,), 1.0)
MUTE = Vocabulary(("a", "b"), (), (), 1.0)


def test_random_lengths_are_uniform_from_ratio_to_the_whole():
    def lengths(ratio: float) -> list[int]:
        load = random_load(RandomLoad(400, 20, 8, ratio, True), WORDS, random.Random(0))
        assert all(len(one.turns[0].addition) == max(2, one.turns[0].input_len) for one in load)
        return [one.turns[0].input_len for one in load]

    assert set(lengths(0.0)) == set(range(1, 21))
    assert set(lengths(0.5)) == set(range(10, 21))
    assert set(lengths(1.0)) == {20}


def test_ids_begin_with_what_the_model_wants():
    (one,) = random_load(RandomLoad(1, 20, 8, 1.0, True), WORDS, random.Random(0))
    assert one.turns[0].addition[0] == 1
    with pytest.raises(ValueError, match="--tokenizer"):
        random_load(RandomLoad(1, 20, 8, 1.0, True), MUTE, random.Random(0))


@pytest.mark.parametrize("as_ids", [False, True])
def test_a_group_shares_its_system_prompt_and_nothing_with_others(as_ids: bool):
    load = SharedLoad(3, 4, 50, 6, 2, 2, True, as_ids, 0.0)
    found = shared_load(load, WORDS, random.Random(0))
    assert len(found) == 12 and total_turns(found) == 24
    groups: dict = {}
    for one in found:
        first, second = (turn.addition for turn in one.turns)
        tokens = list(first) if as_ids else first.split()
        assert len(tokens) == 56 and len(second if as_ids else second.split()) == 6
        groups.setdefault(one.headers, []).append(tuple(tokens[:50]))
    assert len(groups) == 3 == len({starts[0] for starts in groups.values()})
    assert all(len(starts) == 4 and len(set(starts)) == 1 for starts in groups.values())


def test_zipf_groups_are_drawn_by_their_rank():
    load = SharedLoad(4, 3000, 1, 1, 1, 1, True, True, 1.5)
    found = shared_load(load, WORDS, random.Random(0))
    sizes = Counter(one.headers[0][1] for one in found)
    weights = [rank**-1.5 for rank in range(1, 5)]
    assert len(found) == 12_000
    for group, weight in enumerate(weights):
        share = sizes[f"group-{group}"] / 12_000
        assert share == pytest.approx(weight / sum(weights), rel=0.1)


def test_a_chat_gets_messages():
    load = random_load(RandomLoad(2, 5, 8, 1.0, False), WORDS, random.Random(0))
    text = load[0].turns[0].addition
    assert isinstance(text, str)
    assert as_messages(load)[0].turns[0].addition == (Message("user", text),)


def test_the_next_prompt_holds_what_the_model_said():
    reply = Reading(text=" said", output_ids=(7, 8))
    assert extended(" a", reply, " b") == " a said b"
    ids = extended(array("i", [1]), reply, array("i", [2]))
    assert ids.tolist() == [1, 7, 8, 2]
    user = (Message("user", "a"),)
    assert [m.role for m in extended(user, reply, user)] == ["user", "assistant", "user"]
    with pytest.raises(ValueError, match="output ids"):
        extended(array("i", [1]), Reading(text="a"), array("i", [2]))
    with pytest.raises(ValueError, match="throughout"):
        extended("a", reply, user)
