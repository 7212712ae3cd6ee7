"""LatentPools: bytes per token and slot of the released model, rings, pages."""

from __future__ import annotations

import shutil

import pytest
import torch

from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.kernels import ops
from treadle.srt.checkpoint import load_model_config
from treadle.srt.layers.latent_pools import LatentPools
from treadle.srt.layers.row_formats import RowFormats


@pytest.fixture
def pools():
    config = load_model_config(CHECKPOINTS / "v41-nano")
    formats = RowFormats.of("fp4", config.head_dim, config.latent.indexer.head_dim)
    return LatentPools.allocate(
        config, formats, 5, 4, num_slots=3, ring_rows=8, tail_rows=2, draft_rings=1
    )


def test_a_token_of_the_released_model_takes_890_bytes(tmp_path):
    shutil.copy(CHECKPOINTS / "deepseek_v41_flash.json", tmp_path / "config.json")
    config = load_model_config(tmp_path)
    formats = RowFormats.of("fp4", config.head_dim, config.latent.indexer.head_dim)
    pools = LatentPools.allocate(
        config, formats, 3, 64, num_slots=2, ring_rows=128, tail_rows=8, draft_rings=3
    )
    pages = sum(x.entries.nbytes + x.keys.nbytes for x in pools.sources.values())
    assert pages == 3 * 64 * 890
    assert pools.windows.nbytes == 2 * 128 * 43 * 528  # three of them the draft head's


def test_a_ring_keeps_its_last_rows_and_refuses_others(pools):
    rows = torch.arange(20, dtype=torch.uint8)[:, None].expand(-1, pools.windows.shape[-1])
    pools.keep_window(0, 1, 100, rows)
    assert pools.window_rows(0, 1, 112, 120)[:, 0].tolist() == list(range(12, 20))
    with pytest.raises(RuntimeError, match="slot 1 has no window row of position 111"):
        pools.window_rows(0, 1, 111, 113)
    with pytest.raises(RuntimeError, match="position 119"):
        pools.window_rows(1, 1, 119, 120)
    pools.reset(1)
    with pytest.raises(RuntimeError):
        pools.window_rows(0, 1, 119, 120)


def test_entries_are_read_through_the_page_table(pools):
    source = pools.sources[2]
    assert source.ratio == 2 and source.per_page == 2
    entries = torch.arange(3, dtype=torch.uint8)[:, None].expand(-1, source.entries.shape[-1])
    keys = entries[:, : source.keys.shape[-1]]
    dst = torch.tensor([4 * 2, 4 * 2 + 1, 1 * 2])
    ops.store_rows(source.entries.flatten(0, 1), dst, entries)
    ops.store_rows(source.keys.flatten(0, 1), dst, keys)
    table = torch.tensor([4, 1, 0], dtype=torch.int32)
    assert source.read(source.entries, table, 3)[:, 0].tolist() == [0, 1, 2]
    assert source.read(source.keys, table, 1)[:, 0].tolist() == [0]
    assert source.read(source.keys, table, 0).shape[0] == 0


def test_context_starts_after_the_last_gap(pools):
    rows = torch.zeros(3, pools.windows.shape[-1], dtype=torch.uint8)
    pools.keep_window(8, 1, 10, rows)
    assert pools.context_start(8, 1, 13, 8) == 10
    assert pools.context_start(8, 1, 14, 8) == 14
    pools.keep_window(8, 1, 14, rows)
    assert pools.context_start(8, 1, 17, 8) == 14
    assert pools.context_start(8, 2, 0, 8) == 0
