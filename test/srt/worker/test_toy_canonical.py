"""Canonical mode on a toy hybrid in fp64 (3.11): scheduler, cache and worker, no server.

The window is 8 and the grid 64 tokens. All comparisons are of bits: tokens, logprobs and the bytes
of pages.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from test import oracle
from test.driver import kv_pools, make_runner, toy_config
from test.engine import Answer, Engine
from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.config import CacheSection, SchedSection
from treadle.srt.sched.scheduler import Scheduler

CONFIG = toy_config()
PAGE, WINDOW, GRID, SLOTS, PAGES = 4, 8, 64, 9, 256
PROMPT = random.Random(5).choices(range(CONFIG.vocab_size), k=300)

pytestmark = pytest.mark.usefixtures("reference_kernels")


@pytest.fixture(scope="module")
def values() -> dict[str, Tensor]:
    return oracle.random_parameters(CONFIG, 3, torch.float64)


class Toy(Engine):
    """`Engine` around the toy model."""

    def __init__(
        self, values: dict[str, Tensor], *, mode: str = "canonical", slope: int = 0, chunk: int = 90
    ) -> None:
        self.runner = make_runner(CONFIG, values, page_size=PAGE, num_pages=PAGES)
        kinds = tuple(layer.kind for layer in CONFIG.layers)
        rule = ReplayRule(kinds, WINDOW, ReplayShape(mode, slope, 1), PAGE, GRID)
        self.cache = CacheManager(CacheFacts(PAGES, SLOTS, PAGE, True, "lru"), rule)
        sched = SchedSection(max_running=SLOTS - 1, chunk_tokens=chunk, seed=1)
        section = CacheSection(check_invariants=True)
        self.scheduler = Scheduler(sched, section, self.cache, CONFIG.context_len)
        self.answers: dict[str, Answer] = {}
        self.plans = deque()
        self.now = 0.0

    def page_bytes(self, prompt: Sequence[int]) -> Tensor:
        """What the tree holds of the prompt's whole segments, all global layers."""
        rule = self.cache.rule
        ns = rule.namespace(rule.default)
        end = len(prompt) // GRID * GRID
        got = self.cache.tree.pin(ns, array("i", prompt), end, is_resume=True)
        self.cache.tree.unpin(got.pin)
        assert len(got.pages) * PAGE == end
        pages = kv_pools(self.runner).pages
        return torch.stack((pages.k[:, list(got.pages)], pages.v[:, list(got.pages)]))


def same(a: Answer, b: Answer) -> bool:
    return a.token_ids == b.token_ids and a.logprobs == b.logprobs


@pytest.mark.parametrize("slope", (0, 3, 7))
@pytest.mark.parametrize("hit", (64, 128, 192, 256))
def test_a_hit_at_every_grid_point_equals_a_cold_run(
    values: dict[str, Tensor], hit: int, slope: int
):
    cold = Toy(values, slope=slope).answer(PROMPT, 12)
    engine = Toy(values, slope=slope)
    engine.answer(PROMPT[: hit + 9] + [1, 2, 3], 4)
    warm = engine.answer(PROMPT, 12)
    assert warm.usage is not None and cold.usage is not None
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, hit)
    assert same(warm, cold)


@pytest.mark.parametrize("slope", (0, 7))
def test_the_result_does_not_depend_on_chunks(values: dict[str, Tensor], slope: int):
    expected = Toy(values, slope=slope, chunk=1000).answer(PROMPT, 6)
    for chunk in (12, 13, 37, 64, 65, 71, 128, 200):
        engine = Toy(values, slope=slope, chunk=chunk)
        assert same(engine.answer(PROMPT, 6), expected), chunk
        assert same(engine.answer(PROMPT, 6), expected), chunk  # a hit, at 256


@pytest.mark.parametrize("length", (63, 64, 65, 127, 128, 129, 192, 193))
def test_prompts_that_end_near_a_grid_point(values: dict[str, Tensor], length: int):
    engine = Toy(values)
    first = engine.answer(PROMPT[:length], 8)
    again = engine.answer(PROMPT[:length], 8)
    assert again.usage is not None
    assert again.usage.cached_tokens == (length - 1) // GRID * GRID
    assert same(again, first)
    assert same(engine.answer(PROMPT, 8), Toy(values).answer(PROMPT, 8))


def test_canonical_is_another_result_than_exact_beyond_one_segment(values: dict[str, Tensor]):
    exact = Toy(values, mode="exact")
    canonical = Toy(values)
    assert same(canonical.answer(PROMPT[:64], 4), exact.answer(PROMPT[:64], 4))
    assert not same(canonical.answer(PROMPT[:65], 4), exact.answer(PROMPT[:65], 4))


def test_staircase_of_exact_depth_gives_the_exact_result(values: dict[str, Tensor]):
    canonical = Toy(values, slope=WINDOW - 1).answer(PROMPT, 4)
    exact = Toy(values, mode="exact").answer(PROMPT, 4)
    assert canonical.token_ids == exact.token_ids
    assert canonical.logprobs == pytest.approx(exact.logprobs, abs=1e-12)
    assert canonical.usage is not None and canonical.usage.approx_generation == 0


def test_two_owners_give_a_page_the_same_bytes(values: dict[str, Tensor]):
    """One computes all of it alone; of the other, each part is another request's."""
    alone, shared = Toy(values, chunk=1000), Toy(values, chunk=40)
    alone.answer(PROMPT, 3)
    for length in (70, 150, 200, 300):
        shared.answer(PROMPT[:length], 20)
        shared.add("other", PROMPT[::-1][:length], 9, replay_mode="bounded")
        shared.run()
        del shared.answers["other"]
    assert torch.equal(alone.page_bytes(PROMPT), shared.page_bytes(PROMPT))


def test_neighbours_of_every_mode_change_no_bit(values: dict[str, Tensor]):
    """B18, T27: bounded, exact and canonical requests of one prefix in one batch."""
    prompts = [PROMPT[:200], PROMPT[:130] + PROMPT[:50], PROMPT]
    modes = ("canonical", "bounded", "exact", "off")
    engine = Toy(values, chunk=57)
    engine.answer(PROMPT[:140], 3, replay_mode="bounded")
    for i, prompt in enumerate(prompts):
        for mode in modes:
            engine.add(f"{mode}{i}", prompt, 10, replay_mode=mode)
            engine.step()
    engine.run()
    for i, prompt in enumerate(prompts):
        for mode in ("canonical", "exact", "off"):
            expected = Toy(values).answer(prompt, 10, replay_mode=mode)
            assert same(engine.answers[f"{mode}{i}"], expected), (mode, i)


@pytest.mark.parametrize("mode", ("canonical", "exact", "off"))
@pytest.mark.parametrize("at", (1, 2, 3, 5, 6, 8, 9, 12, 20))
def test_preempted_equals_uninterrupted(values: dict[str, Tensor], mode: str, at: int):
    """B35, 3.11: also when the output has grown over a multiple of the grid."""
    prompt = PROMPT[:190]
    expected = Toy(values, mode=mode).answer(prompt, 20)
    engine = Toy(values, mode=mode, chunk=50)
    engine.add("a", prompt, 20)
    for _ in range(at):
        engine.step()
    engine.preempt_all()
    engine.run()
    assert same(engine.answers["a"], expected)


def test_generated_text_is_prefilled_anew(values: dict[str, Tensor]):
    engine = Toy(values)
    first = engine.answer(PROMPT[:150], 60)
    turn = PROMPT[:150] + first.token_ids + PROMPT[:20]
    warm = engine.answer(turn, 8)
    assert warm.usage is not None
    assert warm.usage.cached_tokens == 128
    assert same(warm, Toy(values).answer(turn, 8))


def test_approx_generation_counts_the_grid_points_behind_hit_or_not(values: dict[str, Tensor]):
    engine = Toy(values)
    for length, points in ((64, 0), (65, 1), (300, 4), (300, 4)):
        usage = engine.answer(PROMPT[:length], 2).usage
        assert usage is not None and usage.approx_generation == points
