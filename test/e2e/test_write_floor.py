"""T6, B6: bytes of tree pages are written once. Real scheduler, cache and worker, DeepSeek-V4.1.

A hit runs its last window again in every layer, compressors included; what that computes differs
from what is cached, and must not be written.
"""

from __future__ import annotations

import hashlib
import random

import pytest

from test.engine import Engine
from test.v41 import CHECKPOINTS
from treadle.srt.layers.latent_pools import LatentPools

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

W = 128
NUM_PROMPTS, NUM_REQUESTS, WAVE = 5, 200, 8
VOCAB = range(20, 480)


def page_hashes(engine: Engine) -> dict[int, bytes]:
    """Of every page that a tree node owns: its bytes in all pools that are addressed by page."""
    pools = engine.runner.engine.pools
    assert isinstance(pools, LatentPools)
    rows = [rows for s in pools.sources.values() for rows in (s.entries, s.keys)]
    hashes = {}
    for node in engine.cache.tree.nodes():
        for page in node.pages:
            digest = hashlib.sha256()
            for pool in rows:
                digest.update(pool[page].numpy().tobytes())
            hashes[page] = digest.digest()
    return hashes


def test_no_byte_of_a_tree_page_changes_in_200_warm_requests():
    """Random prefixes of cached prompts with random tails, eight at a time, some with an exact
    replay; no window is kept, so every hit replays. What they publish is watched from then on."""
    rng = random.Random(7)
    engine = Engine(CHECKPOINTS / "v41-nano", quantization="none", running=WAVE, chunk=300)
    prompts = [rng.choices(VOCAB, k=rng.randrange(300, 600)) for _ in range(NUM_PROMPTS)]
    for prompt in prompts:
        engine.answer(prompt, 3)
    before = page_hashes(engine)
    replayed = 0
    for first in range(0, NUM_REQUESTS, WAVE):
        rids = [f"w{first + i}" for i in range(WAVE)]
        for rid in rids:
            prompt = rng.choice(prompts)
            prefix = prompt[: rng.randrange(W + 8, len(prompt))]
            tail = rng.choices(VOCAB, k=rng.randrange(1, 40))
            mode = rng.choice(["bounded", "bounded", "bounded", "exact"])
            engine.add(rid, [*prefix, *tail], rng.randrange(1, 4), replay_mode=mode)
        engine.run()
        after = page_hashes(engine)
        assert all(after[page] == digest for page, digest in before.items())
        before = after
        usages = [engine.answers[rid].usage for rid in rids]
        replayed += sum(x.replayed_tokens > 0 for x in usages if x)
    assert replayed > NUM_REQUESTS // 2
