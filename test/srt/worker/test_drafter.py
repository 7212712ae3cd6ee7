"""Served drafts: output as without, over hits, chunks, batches, limits and preemption."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.engine import Engine
from test.v41 import CHECKPOINTS, golden
from treadle.srt.layers.latent_pools import LatentPools

NANO = CHECKPOINTS / "v41-nano"


def engine(drafts: int, path: Path = NANO, **options: object) -> Engine:
    return Engine(path, quantization="none", drafts=drafts, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return golden("v41-nano", "dspark_text")["ids"].tolist()


def test_drafts_are_proposed_and_accepted_rows_enter_the_context(prompt: list[int]):
    spec = engine(5)
    spec.add("a", prompt[:40], 12)
    spec.run()
    head, pools = spec.runner.engine.drafter, spec.runner.engine.pools
    assert head is not None
    assert isinstance(pools, LatentPools)
    ring = head.head.blocks[0].attention.shape.layer
    held = pools.tags[ring]
    assert int(held.max()) == 40 + 12 - 2  # the last token is never run
    counters = spec.scheduler.stats()[0]
    assert counters["spec_verify_spans"] > 0
    assert counters["spec_draft_tokens"] >= counters["spec_accepted_tokens"]
