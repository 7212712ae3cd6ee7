"""Section 7 of the replay document on the real worker: a tiny Gemma 3 through scheduler and cache.

Five window layers of window 8: the exact depth is 35 rows. int8 products and attention give a row
the same bits in any step, so `exact` is asserted to the bit, in tokens and in logprobs.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from test.driver import kv_pools
from test.engine import Answer, Engine
from test.tiny import tiny_gemma3

EXACT_ROWS = 35
PAGE = 4
PROMPT = random.Random(2).choices(range(5, 320), k=130)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


def same(a: Answer, b: Answer) -> bool:
    return a.token_ids == b.token_ids and a.logprobs == b.logprobs


def cold(folder: Path, prompt: list[int], count: int, **options: object) -> Answer:
    return Engine(folder, mode="exact", **options).answer(prompt, count)  # type: ignore[arg-type]


@pytest.mark.parametrize("pages", range(1, 6))
def test_exact_hit_equals_cold_to_the_bit_for_any_chunk(folder: Path, pages: int):
    """Test 5: chunks of R+P .. R+5P, prompt lengths around multiples of page and window."""
    engine = Engine(folder, mode="exact", chunk=EXACT_ROWS + pages * PAGE + 1)
    engine.answer(PROMPT[:100], 4)
    for length in (101, 103, 104, 105, 111, 112, 113, 120, 127, 128, 129):
        prompt = PROMPT[:100] + PROMPT[length - 100 :][: length - 100]
        warm = engine.answer(prompt, 6)
        assert warm.usage is not None
        assert warm.usage.cached_tokens == 100
        assert warm.usage.replayed_tokens == EXACT_ROWS
        assert same(warm, cold(folder, prompt, 6))


def test_exact_hit_equals_cold_on_the_reference_path(folder: Path, reference_kernels: None):
    def engine() -> Engine:
        return Engine(folder, quantization="none", mode="exact", chunk=EXACT_ROWS + 9)

    warm_engine = engine()
    warm_engine.answer(PROMPT[:100], 2)
    warm = warm_engine.answer(PROMPT, 8)
    assert warm.usage is not None
    assert warm.usage.cached_tokens == 100
    assert same(warm, engine().answer(PROMPT, 8))


def test_bounded_hit_is_close_and_not_exact(folder: Path):
    engine = Engine(folder)
    engine.answer(PROMPT[:100], 2)
    warm, expected = engine.answer(PROMPT, 1), cold(folder, PROMPT, 1)
    assert warm.usage is not None
    assert (warm.usage.cached_tokens, warm.usage.replayed_tokens) == (100, 8)
    assert warm.logprobs != expected.logprobs
    assert warm.logprobs[0] == pytest.approx(expected.logprobs[0], abs=1.0)


@pytest.mark.parametrize("at", range(1, 12))
def test_preempted_at_any_step_equals_uninterrupted(folder: Path, at: int):
    """Test 5: resume is a hit, exact mode replays exactly (B35, T44)."""
    engine = Engine(folder, mode="exact", chunk=48)
    engine.add("a", PROMPT, 10)
    for _ in range(at):
        engine.step()
    engine.preempt_all()
    engine.run()
    assert same(engine.answers["a"], cold(folder, PROMPT, 10))


def test_tiny_pool_preempts_and_every_text_is_as_alone(folder: Path):
    """T42-T46 on the real worker; no hit across requests changes an exact text."""
    engine = Engine(folder, mode="exact", pages=75, chunk=64, conservativeness=0.01)
    prompts = [PROMPT[i : i + 60] for i in (0, 17, 31, 44)]
    for i, prompt in enumerate(prompts):
        engine.add(f"r{i}", prompt, 50)
    engine.run()
    counters, _ = engine.scheduler.stats()
    assert counters["preemptions"] > 0
    for i, prompt in enumerate(prompts):
        assert same(engine.answers[f"r{i}"], cold(folder, prompt, 50)), i


def test_equal_prompts_at_once_and_a_third_on_freed_pages(folder: Path):
    """Test 6: duplicates are rebound before they are freed (T14)."""
    engine = Engine(folder, mode="exact", pages=120)
    for rid in ("a", "b"):
        engine.add(rid, PROMPT, 20)
    for _ in range(6):
        engine.step()
    engine.add("c", PROMPT[::-1], 20)
    engine.run()
    expected = cold(folder, PROMPT, 20)
    assert same(engine.answers["a"], expected)
    assert same(engine.answers["b"], expected)
    assert same(engine.answers["c"], cold(folder, PROMPT[::-1], 20))


def test_poisoned_rings_of_free_slots_never_show(folder: Path):
    """Test 3, with the slots the scheduler hands out."""
    engine = Engine(folder, running=2)
    expected = [Engine(folder, running=2).answer(PROMPT[:60], 8).token_ids]
    for _ in range(4):
        rings = kv_pools(engine.runner).windows
        rings.k[:] = torch.nan
        rings.v[:] = torch.nan
        engine.cache.flush()
        expected.append(engine.answer(PROMPT[:60], 8).token_ids)
    assert all(x == expected[0] for x in expected)
    warm = engine.answer(PROMPT, 8)
    assert warm.reason == "length"


def test_every_page_of_the_tree_keeps_its_bytes(folder: Path):
    """T6, B6: a hash of all tree pages survives twenty warm requests."""
    engine = Engine(folder, slope=2)
    engine.answer(PROMPT[:100], 2)
    pages = sorted(p for node in engine.cache.tree.nodes() for p in node.pages)
    pool = kv_pools(engine.runner).pages
    before = pool.k[:, pages].clone(), pool.v[:, pages].clone()
    for seed in range(20):
        tail = random.Random(seed).choices(range(5, 320), k=1 + seed)
        answer = engine.answer(PROMPT[: 40 + 3 * seed] + tail, 3)
        assert answer.usage is not None
        assert answer.usage.cached_tokens > 0
    assert torch.equal(pool.k[:, pages], before[0])
    assert torch.equal(pool.v[:, pages], before[1])
