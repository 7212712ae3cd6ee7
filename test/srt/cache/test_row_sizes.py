"""Bytes of cached rows: the published sums, and agreement with the packed forms themselves."""

from __future__ import annotations

import shutil

import pytest

from test.srt.test_deepseek_v41_config import CHECKPOINTS
from treadle.srt.cache.row_sizes import LATENT_ROWS, RowSizes, latent_row_bytes, tail_rows
from treadle.srt.checkpoint import load_model_config
from treadle.srt.errors import ConfigError
from treadle.srt.layers.latent_pools import LatentPools
from treadle.srt.layers.row_formats import RowFormats


@pytest.fixture
def released(tmp_path):
    shutil.copy(CHECKPOINTS / "deepseek_v41_flash.json", tmp_path / "config.json")
    return load_model_config(tmp_path)


@pytest.mark.parametrize(
    ("kind", "token"), [("fp4", 890), ("fp8", 1650), ("bfloat16", 2.5 * 1280), ("float32", 6400)]
)
def test_a_token_of_the_released_model_takes_the_published_bytes(released, kind, token):
    assert RowSizes.of(released, kind).token_bytes == token


def test_a_window_of_the_released_model_takes_the_published_bytes(released):
    sizes = RowSizes.of(released, "fp4", draft_tokens=5)
    assert sizes.num_rings * 128 * sizes.ring_row_bytes == 2_906_112
    assert sizes.tail_bytes == 3 * 8 * 2 * 512 * 4


def test_without_drafts_there_are_no_rings_of_the_draft_head(released):
    sizes = RowSizes.of(released, "fp4")
    assert sizes.num_rings * 128 * sizes.ring_row_bytes == 2_703_360
    assert sizes.tail_bytes == 3 * 2 * 2 * 512 * 4


def test_a_tail_holds_a_pair_and_the_drafts():
    """S9: a power of two, at least 2 + d."""
    assert [tail_rows(d) for d in (0, 1, 2, 5, 6, 7)] == [2, 4, 4, 8, 8, 16]


@pytest.mark.parametrize("kind", LATENT_ROWS)
def test_sums_agree_with_what_is_allocated(kind):
    config = load_model_config(CHECKPOINTS / "v41-nano")
    formats = RowFormats.of(kind, config.head_dim, config.latent.indexer.head_dim)
    entry, key, ring = latent_row_bytes(kind, config.head_dim, config.latent.indexer.head_dim)
    assert (entry, key, ring) == (
        formats.entry.row_bytes, formats.key.row_bytes, formats.window.row_bytes,
    )  # fmt: skip
    sizes = RowSizes.of(config, kind)
    pools = LatentPools.allocate(
        config, formats, 3, 16, num_slots=4, ring_rows=20, tail_rows=2, draft_rings=0
    )
    rings = sizes.num_rings * 20 * sizes.ring_row_bytes
    assert pools.num_bytes == 3 * 8 * sizes.pair_bytes + 4 * (rings + sizes.tail_bytes)


def test_a_form_that_the_caches_do_not_have_is_refused(released):
    with pytest.raises(ConfigError, match="--kv-cache-dtype float16: must be one of fp4"):
        RowSizes.of(released, "float16")
