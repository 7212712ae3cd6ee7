"""Logprobs of prompts on the real worker, through scheduler and cache: to the bit.

Warm equals cold, any chunk size equals any other, a generation equals its own rescoring.
"""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

from test.engine import Answer, Engine
from test.tiny import tiny_gemma3

PROMPT = random.Random(5).choices(range(5, 320), k=130)
IDS = array("i", [9, 300])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cold(folder: Path) -> list[float]:
    answer = Engine(folder).answer(PROMPT, 1, logprob_start=0)
    assert len(answer.prompt_logprobs) == len(PROMPT) - 1
    return answer.prompt_logprobs


def cached(answer: Answer) -> int:
    assert answer.usage is not None
    return answer.usage.cached_tokens


@pytest.mark.parametrize("chunk", [12, 13, 40, 64, 256])
def test_chunks_do_not_change_a_logprob(folder: Path, cold: list[float], chunk: int):
    answer = Engine(folder, chunk=chunk, running=2).answer(PROMPT, 1, logprob_start=0)
    assert len(answer.scores) == -(-len(PROMPT) // (chunk // 4 * 4 if chunk < 130 else 256))
    assert answer.prompt_logprobs == cold


def test_a_warm_prompt_equals_a_cold_one(folder: Path, cold: list[float]):
    """B26, and the replay of a scoring request is exact though the server's is bounded."""
    engine = Engine(folder)
    engine.answer(PROMPT[:120], 1, replay_mode="exact")
    for start, hit in ((0, 0), (1, 0), (101, 100), (104, 100), (105, 104), (120, 116), (129, 128)):
        warm = engine.answer(PROMPT, 1, logprob_start=start)
        assert warm.prompt_logprobs == cold[max(start, 1) - 1 :]
        assert cached(warm) == hit


def test_neighbours_do_not_change_a_logprob(folder: Path, cold: list[float]):
    engine = Engine(folder, chunk=64)
    engine.add("other", PROMPT[::-1], 30)
    for _ in range(4):
        engine.step()
    engine.add("a", PROMPT, 4, logprob_start=0)
    engine.add("b", PROMPT[40:], 4, logprob_start=3)
    engine.run()
    assert engine.answers["a"].prompt_logprobs == cold


def test_a_generation_equals_its_own_rescoring(folder: Path):
    """A decode row and the same row of a prompt have the same bits."""
    engine = Engine(folder)
    answer = engine.answer(PROMPT[:50], 20)
    text = PROMPT[:50] + answer.token_ids
    again = engine.answer(text, 0, logprob_start=50)
    assert again.prompt_logprobs == answer.logprobs
    assert again.token_ids == []
    assert again.reason == "length"


@pytest.mark.parametrize("at", range(1, 5))
def test_preempted_between_chunks_equals_uninterrupted(folder: Path, cold: list[float], at: int):
    """T43: what was returned is kept, the rest is computed after the resume."""
    engine = Engine(folder, chunk=32)
    engine.add("a", PROMPT, 3, logprob_start=0)
    for _ in range(at):
        engine.step()
    while engine.plans:
        engine.take(engine.scheduler.commit(engine.runner.execute(engine.plans.popleft()), 0.0))
    engine.scheduler._preempt(next(iter(engine.scheduler._running)))
    engine.run()
    assert engine.answers["a"].prompt_logprobs == cold


def test_best_and_asked_tokens_come_with_each(folder: Path, cold: list[float]):
    engine = Engine(folder, chunk=64)
    engine.add("a", PROMPT, 1, logprob_start=0, logprob_ids=IDS, top_logprobs=3)
    engine.run()
    answer = engine.answers["a"]
    assert answer.prompt_logprobs == cold
    tops = [x for part in answer.scores for x in part.top_logprobs]
    ranks = [x for part in answer.scores for x in part.ranks]
    assert len(tops) == 3 * len(cold)
    assert sum(len(part.chosen) for part in answer.scores) == 2 * len(cold)
    for i, own in enumerate(cold):
        best = tops[3 * i : 3 * i + 3]
        assert best == sorted(best, reverse=True)
        assert (own in best) == (ranks[i] <= 3)


def test_canonical_scores_do_not_depend_on_the_cache(folder: Path):
    """3.12: a canonical run is its own reference, cold or warm."""
    expected = Engine(folder).answer(PROMPT, 1, logprob_start=0, replay_mode="canonical")
    engine = Engine(folder)
    engine.answer(PROMPT[:120], 1, replay_mode="canonical")
    for start in (0, 90, 121):
        warm = engine.answer(PROMPT, 1, logprob_start=start, replay_mode="canonical")
        assert warm.prompt_logprobs == expected.prompt_logprobs[max(start, 1) - 1 :]
    assert cached(warm) > 0


def test_a_turn_that_takes_over_a_window_is_scored_as_a_cold_one(folder: Path):
    """Donation: what is scored begins where the finished turn ended, or inside it."""
    engine = Engine(folder)
    first = engine.answer(PROMPT[:61], 20, replay_mode="exact")
    turn = PROMPT[:61] + first.token_ids + PROMPT[61:80]
    expected = Engine(folder).answer(turn, 1, logprob_start=0).prompt_logprobs
    for start in (81, 70, 1):
        warm = engine.answer(turn, 1, logprob_start=start)
        assert warm.prompt_logprobs == expected[start - 1 :]
        assert cached(warm) <= start - 1
