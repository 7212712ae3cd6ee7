"""Packed bytes in the pools of a running worker: as expected by an independent implementation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from test.replica import Replica
from test.v41 import CHECKPOINTS, NAMES, golden, manifest
from treadle.srt.config import CacheSection, SchedSection
from treadle.srt.layers.latent_pools import LatentPools

CACHE = CacheSection(memory_bytes=64 << 20, page_size=4, warm_windows=0)
SCHED = SchedSection(max_running=1, chunk_tokens=256)  # so slot 1 is everybody's
SLOT = 1
SIZE = 300


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    served: str = request.param
    return served


@pytest.fixture(scope="module")
def replica(name: str) -> Iterator[Replica]:
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        replica = Replica(CHECKPOINTS / name, Path(folder), CACHE, SCHED)
        with replica:
            yield replica


@pytest.fixture(scope="module")
def rings(name: str, replica: Replica) -> dict[tuple[int, int], Tensor]:
    """Packed window rows by layer and position, after the prompt of the expected bytes was served,
    cold and with all rows in all layers; and beginnings of it, as a ring holds one window only."""
    data, pools = golden(name, "caches_300"), pools_of(replica)
    asked = {
        (int(key.split("_")[1]), position)
        for key in data
        if re.fullmatch(r"swa_\d+", key)
        for position in data[f"{key}_pos"].tolist()
    }
    found = {}
    for size in (2, 151, SIZE):
        output = replica.answer(data["ids"][:size].tolist(), "off")
        assert output.usage.cached_tokens == 0
        for layer, p in asked:
            if size - pools.tags.shape[2] <= p < size:
                found[layer, p] = pools.window_rows(layer, SLOT, p, p + 1)[0]
    return found


def pools_of(replica: Replica) -> LatentPools:
    pools = replica.runner.engine.pools
    assert isinstance(pools, LatentPools)
    return pools


def tree_pages(replica: Replica) -> Tensor:
    """Ids of the prompt's pages, in order: all 300 positions were published."""
    pages = [page for node in replica.books.cache.tree.nodes() for page in node.pages]
    assert len(pages) == SIZE // CACHE.page_size
    return torch.tensor(pages)


def share(found: Tensor, expected: Tensor) -> float:
    return float((found == expected).float().mean())


@pytest.mark.usefixtures("rings")
def test_pages_of_the_tree_hold_the_expected_entries_and_keys(name: str, replica: Replica):
    """The shares are those between two roundings of the same mathematics. Expected keys were packed
    from rounded values (deepseek-v41.md 4.1): ours are packed a second time to compare."""
    data, tolerance = golden(name, "caches_300"), manifest(name)["caches_300"]["tolerance"]
    pools, pages = pools_of(replica), tree_pages(replica)
    for layer, source in pools.sources.items():
        index = data[f"entries_{layer}_index"]
        entries = source.read(source.entries, pages, SIZE // source.ratio)[index]
        least = tolerance[f"entries_{layer}_equal_share_bf16"] - 0.05
        assert share(entries, data[f"entries_{layer}"]) >= least, layer
        form = pools.formats.key
        keys = source.read(source.keys, pages, SIZE // source.ratio)[index]
        keys = form.encode(form.decode(keys))
        least = tolerance[f"index_keys_{layer}_equal_share_bf16"] - 0.05
        assert share(keys, data[f"index_keys_{layer}"]) >= least, layer


def test_the_rings_hold_the_expected_window_rows(
    name: str, replica: Replica, rings: dict[tuple[int, int], Tensor]
):
    data, tolerance = golden(name, "caches_300"), manifest(name)["caches_300"]["tolerance"]
    form = pools_of(replica).formats.window
    for layer in {layer for layer, _ in rings}:
        key = f"swa_{layer}"
        rows = torch.stack([rings[layer, p] for p in data[f"{key}_pos"].tolist()])
        least = tolerance.get(f"{key}_equal_share_bf16", 0.5) - 0.05
        assert share(form.encode(form.decode(rows)), data[key]) >= least, key


@pytest.mark.usefixtures("rings")
def test_a_warm_request_leaves_every_byte_of_its_hit(name: str, replica: Replica):
    """B6, T6: a hit is read and its window replayed into the rings; its pages stay as they are."""
    data, pools = golden(name, "caches_300"), pools_of(replica)
    pages = tree_pages(replica)
    before = [x[pages].clone() for s in pools.sources.values() for x in (s.entries, s.keys)]
    output = replica.answer([*data["ids"][:200].tolist(), *range(20, 60)])
    assert (output.usage.cached_tokens, output.usage.replayed_tokens) == (200, 128)
    after = [x[pages] for s in pools.sources.values() for x in (s.entries, s.keys)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
