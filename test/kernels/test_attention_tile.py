"""Tiles of the attention reference: what is loaded, and independence of what runs beside a row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from test.naive_attention import naive_attention
from treadle.kernels.attention_inputs import Shape, Stream, make_stream
from treadle.kernels.reference.attention_tile import EVERYTHING, TILE_ROWS, attend_run

SHAPE = Shape(heads=4, kv_heads=2, head_dim=8)


def attend(stream: Stream, lo: int, hi: int, span: tuple[int, int]) -> Tensor:
    """Rows lo .. hi - 1; keys that no such row sees are NaN."""
    window, floor = span
    lowest = max(floor, lo - window + 1, 0)

    def load(a: int, b: int) -> tuple[Tensor, Tensor]:
        assert lowest <= a < b <= hi, "only seen keys are asked for"
        return stream.k[a:b], stream.v[a:b]

    return attend_run(stream.q[lo:hi], lo, span, SHAPE.scale, load)


@pytest.mark.parametrize("span", [(EVERYTHING, 0), (1, 0), (20, 0), (20, 13), (64, 40)])
def test_tiles_are_the_textbook_formula(span: tuple[int, int]):
    stream = make_stream(SHAPE, 100, seed=0, dtype=torch.float64)
    floor = span[1]
    out = attend(stream, floor, 100, span)
    want = naive_attention(stream, *span, dtype=torch.float64)[floor:]
    torch.testing.assert_close(out, want, atol=1e-12, rtol=0)


@settings(max_examples=60)
@given(
    rows=st.tuples(st.integers(0, 119), st.integers(1, 120)),
    window=st.sampled_from([1, TILE_ROWS, 33, EVERYTHING]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_any_part_is_bit_equal_to_the_whole(rows: tuple[int, int], window: int, dtype: torch.dtype):
    stream = make_stream(SHAPE, 120, seed=1, dtype=dtype)
    lo, hi = rows[0], min(120, rows[0] + rows[1])
    whole = attend(stream, 0, 120, (window, 0))
    assert torch.equal(attend(stream, lo, hi, (window, 0)), whole[lo:hi])


def test_no_rows():
    stream = make_stream(SHAPE, 10, seed=0)
    assert attend_run(stream.q[:0], 4, (8, 0), 1.0, lambda a, b: (stream.k, stream.v)).numel() == 0
