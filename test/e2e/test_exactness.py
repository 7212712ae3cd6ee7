"""Warm equals cold to the bit on the int8 kernels: a tiny Gemma 3, random prompts, hits and chunks.

Pairs of each mode (forty among the slow tests), with output and prompt logprobs. The same on the
real weights is `benchmark/quality/exactness.py`.
"""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

from test.engine import Answer, Engine
from test.tiny import tiny_gemma3

PAGE, GRID, EXACT_ROWS = 4, 64, 35  # five window layers of window 8
FEW, MANY = 6, 40  # pairs
MODES = ("exact", "canonical")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


def cut_cache(engine: Engine, keep_tokens: int) -> None:
    """Of the one text that is cached the first `keep_tokens` stay, and no window."""
    engine.cache.windows.clear()
    pages = engine.cache.tree.evictable_pages
    engine.cache.evict(max(0, pages - keep_tokens // PAGE))


def draw(mode: str, rng: random.Random) -> tuple[list[int], int]:
    """A prompt and the length of its hit."""
    if mode == "canonical":
        hit = GRID * rng.randint(1, 3)
    else:
        hit = PAGE * rng.randint(EXACT_ROWS // PAGE + 2, 40)
    prompt = [rng.randrange(5, 320) for _ in range(hit + rng.randint(1, 90))]
    return prompt, hit


def ask(engine: Engine, prompt: list[int], hit: int) -> Answer:
    return engine.answer(prompt, 6, logprob_start=hit + 1)


def numbers(answer: Answer) -> tuple[list[int], list[float], list[float]]:
    return answer.token_ids, answer.logprobs, answer.prompt_logprobs


@pytest.mark.parametrize("pairs", (FEW, pytest.param(MANY, marks=pytest.mark.slow)))
@pytest.mark.parametrize("mode", MODES)
def test_random_pairs_of_prompt_and_hit(folder: Path, mode: str, pairs: int):
    """3.4, 3.11: cold in chunks of one size, warm in those of another."""
    rng = random.Random(mode)
    engines = [Engine(folder, mode=mode, chunk=chunk) for chunk in (48, 61, 300)]
    for _ in range(pairs):
        prompt, hit = draw(mode, rng)
        one, other = rng.sample(engines, 2)
        one.cache.flush()
        other.cache.flush()
        cold = ask(one, prompt, hit)
        ask(other, prompt, hit)
        cut_cache(other, hit)
        warm = ask(other, prompt, hit)
        assert cold.usage is not None and warm.usage is not None
        assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, hit)
        assert len(warm.prompt_logprobs) == len(prompt) - hit - 1
        assert numbers(warm) == numbers(cold), (len(prompt), hit)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", (2, 5, 9, 14))
def test_preempted_equals_uninterrupted(folder: Path, mode: str, at: int):
    """B35: in exact and canonical mode resume follows that mode."""
    rng = random.Random(at)
    prompt = [rng.randrange(5, 320) for _ in range(150)]
    expected = Engine(folder, mode=mode).answer(prompt, 20)
    engine = Engine(folder, mode=mode, chunk=48)
    engine.add("a", prompt, 20)
    for _ in range(at):
        engine.step()
    engine.preempt_all()
    engine.cache.windows.clear()
    engine.run()
    assert numbers(engine.answers["a"]) == numbers(expected)


def test_canonical_hit_on_the_reference_path(folder: Path, reference_kernels: None):
    rng = random.Random(7)
    prompt = [rng.randrange(5, 320) for _ in range(200)]
    engine = Engine(folder, mode="canonical", quantization="none", chunk=70)
    cold = engine.answer(prompt, 8)
    assert (
        engine.cache.probe(
            engine.cache.rule.namespace(engine.cache.rule.default),
            array("i", prompt),
            len(prompt) - 1,
            engine.cache.rule.default,
        ).length
        == 3 * GRID
    )
    assert numbers(engine.answer(prompt, 8)) == numbers(cold)
