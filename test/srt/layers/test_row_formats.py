"""Bytes of cached rows."""

from __future__ import annotations

import pytest
import torch

from treadle.srt.layers.row_formats import RowFormats


def rows(size: int) -> torch.Tensor:
    return torch.randn(3, 4, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("fp4", (288, 68, 528)), ("fp8", (528, 132, 528)), ("bfloat16", (1024, 256, 1024))],
)
def test_released_rows_have_the_published_sizes(kind, sizes):
    formats = RowFormats.of(kind, 512, 128)
    found = (formats.entry.row_bytes, formats.key.row_bytes, formats.window.row_bytes)
    assert found == sizes


@pytest.mark.parametrize("kind", ["fp4", "fp8", "bfloat16", "float32"])
@pytest.mark.parametrize("part", ["entry", "key", "window"])
def test_what_is_decoded_is_near_and_encodes_to_the_same_values(kind, part):
    row_format = getattr(RowFormats.of(kind, 64, 64), part)
    x = rows(64)
    packed = row_format.encode(x)
    assert packed.dtype == torch.uint8 and packed.shape == (3, 4, row_format.row_bytes)
    back = row_format.decode(packed)
    assert (back - x).abs().max() <= x.abs().max() / 4
    assert torch.equal(row_format.decode(row_format.encode(back)), back)
    assert row_format.decode(packed[:0]).shape == (0, 4, 64)
    if kind == "float32":
        assert torch.equal(back, x)
