"""Window donation on the real worker: a tiny Gemma 3 through scheduler and cache.

Five window layers of window 8, pages of 4, slope 0: a bounded replay has 8 rows, an exact one 35.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from test.engine import Answer, Engine
from test.tiny import tiny_gemma3
from treadle.srt.messages import AbortRequest, RequestId

PROMPT = random.Random(2).choices(range(5, 320), k=61)
TOOL = random.Random(3).choices(range(5, 320), k=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


def hit(answer: Answer) -> tuple[int, int]:
    """(cached, replayed)."""
    assert answer.usage is not None
    return answer.usage.cached_tokens, answer.usage.replayed_tokens


def same(a: Answer, b: Answer) -> bool:
    return a.token_ids == b.token_ids and a.logprobs == b.logprobs


def check_continued(folder: Path, mode: str, cut: int) -> None:
    """Acceptance: a turn that goes on where one ended equals the generation that never stopped."""
    whole = Engine(folder, mode=mode).answer(PROMPT, 40)
    engine = Engine(folder, mode=mode, warm=2)
    first = engine.answer(PROMPT, cut)
    rest = engine.answer(PROMPT + first.token_ids, 40 - cut)
    end = len(PROMPT) + cut - 1  # the last sampled token was never run
    assert hit(rest) == (end // 4 * 4, 0)
    assert first.token_ids + rest.token_ids == whole.token_ids
    assert first.logprobs + rest.logprobs == whole.logprobs


@pytest.mark.parametrize("mode", ["bounded", "exact"])
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 20])
def test_turn_continued_by_donation_equals_the_uninterrupted_one(folder: Path, mode: str, cut: int):
    check_continued(folder, mode, cut)


@pytest.mark.parametrize("cut", [3, 8])
def test_and_with_reference_kernels(folder: Path, cut: int, reference_kernels: None):
    check_continued(folder, "exact", cut)


@pytest.mark.parametrize("mode", ["bounded", "exact"])
def test_turns_with_tool_output_never_replay_and_equal_cold_to_the_bit(folder: Path, mode: str):
    engine = Engine(folder, mode=mode, warm=1, running=1)
    prompt = PROMPT
    for turn in range(4):
        answer = engine.answer(prompt, 9, session="s")
        assert same(answer, Engine(folder, mode=mode).answer(prompt, 9))
        if turn:
            cached, replayed = hit(answer)
            assert replayed == 0
            assert cached > len(prompt) - len(TOOL) - 9
        prompt = [*prompt, *answer.token_ids, *TOOL[turn:]]
    counters, gauges = engine.scheduler.stats()
    assert counters["replay_rows"] == 0
    assert counters["window_takeovers"] + counters["window_copies"] == 3
    assert gauges["window_slots{state=warm}"] == 2


def test_both_branches_of_a_fork_go_on_without_replay(folder: Path):
    """The window is copied while slots are free, so the other branch finds it too."""
    engine = Engine(folder, mode="exact", warm=4)
    first = engine.answer(PROMPT, 9)
    for tail in (TOOL, TOOL[::-1]):
        prompt = [*PROMPT, *first.token_ids, *tail]
        answer = engine.answer(prompt, 6)
        assert hit(answer)[1] == 0 and hit(answer)[0] > 60
        assert same(answer, Engine(folder, mode="exact").answer(prompt, 6))


def test_poison_in_every_idle_slot_changes_nothing(folder: Path):
    """Section 7 test 3: NaN in free slots, and in warm ones outside the window."""
    engine = Engine(folder, mode="exact", warm=3)
    first = engine.answer(PROMPT, 9)
    rings = engine.runner.pools.windows
    warm = set(engine.cache.windows.warm)
    end = (len(PROMPT) + 8) // 4 * 4
    for slot in range(1, rings.tags.shape[1]):
        tags = rings.tags[:, slot]
        needed = (tags < end) & (tags > end - 8) & (slot in warm)
        rings.k[:, slot][~needed], rings.v[:, slot][~needed] = torch.nan, torch.nan
    prompt = [*PROMPT, *first.token_ids, *TOOL]
    assert same(engine.answer(prompt, 12), Engine(folder, mode="exact").answer(prompt, 12))


def test_aborted_turn_leaves_its_window(folder: Path):
    """T36: answered rows are valid, and so is their window."""
    engine = Engine(folder, mode="exact", warm=1)
    engine.add("a", PROMPT, 40)
    for _ in range(12):
        engine.step()
    engine.scheduler.abort(AbortRequest(RequestId("a"), "client"), engine.now)
    engine.run()
    prompt = [*PROMPT, *engine.answers["a"].token_ids, *TOOL]
    answer = engine.answer(prompt, 6)
    assert hit(answer)[1] == 0 and hit(answer)[0] > 60
    assert same(answer, Engine(folder, mode="exact").answer(prompt, 6))


def test_mode_off_has_no_hits_and_models_without_warm_slots_replay(folder: Path):
    engine = Engine(folder, warm=1)
    first = engine.answer(PROMPT, 9)
    prompt = [*PROMPT, *first.token_ids, *TOOL]
    assert hit(engine.answer(prompt, 1, replay_mode="off")) == (0, 0)
    plain = Engine(folder, warm=0)
    plain.answer(PROMPT, 9)
    assert hit(plain.answer(prompt, 1)) == (68, 8)
