"""The runner on a tiny checkpoint: device tokens, logprobs, bad rows, capacity."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
import torch

from test.driver import kv_pools
from test.loading import load_runner, small_cache
from test.tiny import tiny_gemma3
from treadle.srt.errors import ConfigError
from treadle.srt.messages import PageUpdate, Rewind, RowSpan, SamplingParams, SlotReset, StepPlan
from treadle.srt.worker.runner import Runner

PROMPT = list(range(10, 30))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gemma3(tmp_path_factory.mktemp("model"))


@pytest.fixture
def runner(folder: Path) -> Runner:
    return load_runner(folder)


def plan(step: int, span: RowSpan, ids: list[int], top: int | None = None) -> StepPlan:
    params = SamplingParams(max_new_tokens=9, temperature=0.0)
    resets = (SlotReset(1, 0, 0, 0, 1, 20, 0, params, top),) if span.start == 0 else ()
    pages = (PageUpdate(1, 0, array("i", range(1, 12))),) if span.start == 0 else ()
    return StepPlan(step, array("i", span), array("i", ids), resets, pages)


def test_decode_row_takes_its_token_from_the_slot(runner: Runner, folder: Path):
    first = runner.execute(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT))
    told = load_runner(folder)
    told.execute(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT))
    by_device = runner.execute(plan(2, RowSpan(1, 20, 20, 21, 1), [-1]))
    by_plan = told.execute(plan(2, RowSpan(1, 20, 20, 21, 1), list(first.token_ids)))
    assert by_device.token_ids == by_plan.token_ids
    other = told.execute(plan(3, RowSpan(1, 20, 20, 21, 1), [(first.token_ids[0] + 1) % 300]))
    assert len(other.token_ids) == 1


def test_unsampled_chunk_returns_no_token(runner: Runner):
    out = runner.execute(plan(1, RowSpan(1, 0, 0, 8, 0), PROMPT[:8]))
    assert len(out.token_ids) == 0
    assert out.logprobs == ()
    assert out.layer_rows == (8,) * len(runner.config.layers)


def test_logprobs_come_only_when_asked(runner: Runner):
    quiet = runner.execute(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT))
    asked = runner.execute(plan(2, RowSpan(1, 0, 0, 20, 1), PROMPT, top=2))
    assert quiet.logprobs == ()
    (got,) = asked.logprobs
    assert got is not None
    assert got.top_ids[0] == asked.token_ids[0]
    assert got.logprob == got.top_logprobs[0] <= 0


def test_rows_with_nan_are_reported(runner: Runner):
    """T13."""
    runner.execute(plan(1, RowSpan(1, 0, 0, 20, 1), PROMPT))
    kv_pools(runner).pages.v[:, 1:3] = torch.nan
    out = runner.execute(plan(2, RowSpan(1, 20, 20, 21, 1), [-1]))
    assert out.bad == (0,)


def test_capacity_is_what_the_pools_hold(runner: Runner):
    ready = runner.capacity(0)
    assert ready.num_pages == kv_pools(runner).pages.k.shape[1]
    assert ready.num_slots == 9  # four requests, as many warm windows, and the sink
    assert ready.kv_bytes <= 64 << 20
    assert ready.weight_bytes > 100_000


def test_budget_that_holds_no_chunk_is_refused(folder: Path):
    with pytest.raises(ConfigError, match="--kv-cache-memory"):
        load_runner(folder, cache=small_cache(1 << 16))


def test_rewind_empties_the_rings_and_keeps_the_rest_of_the_slot(runner: Runner):
    """S6, 3.11: a grid point inside a prompt."""
    runner.execute(plan(1, RowSpan(1, 0, 0, 16, 0), PROMPT[:16]))
    state = runner.slots.sampler[1]
    span = RowSpan(1, 10, 16, 14, 0)
    rewind = Rewind(1, floor=10, hit=16, slope=0, depth=1)
    ids = array("i", PROMPT[10:14])
    runner.execute(StepPlan(2, array("i", span), ids, rewinds=(rewind,)))
    tags = kv_pools(runner).windows.tags[:, 1]
    assert sorted(tags[0][tags[0] >= 0].tolist()) == [10, 11, 12, 13]
    assert int(tags.max()) == 13
    assert runner.slots.sampler[1] is state
