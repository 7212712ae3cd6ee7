"""Pooling of two positions on a device. Specification: `reference/compressor.py`. Other dtypes than
float32 run the reference."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import compressor as reference

BLOCK = 1024  # channels of a program


def pool_pairs(even: Tensor, even_gate: Tensor, odd: Tensor, odd_gate: Tensor) -> Tensor:
    """See `reference.compressor.pool_pairs`. Raises `ValueError` when sizes disagree."""
    parts = (even, even_gate, odd, odd_gate)
    if any(part.dtype is not torch.float32 for part in parts):
        return reference.pool_pairs(*parts)
    if any(part.shape != even.shape for part in parts):
        raise ValueError(f"pool_pairs of {[tuple(part.shape) for part in parts]}")
    dense = [part.contiguous() for part in parts]
    out = torch.empty(even.shape, device=even.device)
    if count := out.numel():
        _pool_pairs[(triton.cdiv(count, BLOCK),)](*dense, out, count, BLOCK)
    return out


@triton.jit(do_not_specialize=["count"])
def _pool_pairs(
    even,
    even_gate,
    odd,
    odd_gate,
    out,
    count,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    first = tl.load(even + place, inside, other=0.0)  # bound: the end of the last row
    second = tl.load(odd + place, inside, other=0.0)
    first_gate = tl.load(even_gate + place, inside, other=0.0)
    second_gate = tl.load(odd_gate + place, inside, other=0.0)
    tl.store(out + place, pooled(first, first_gate, second, second_gate), inside)


@triton.jit
def pooled(even, even_gate, odd, odd_gate):
    """A softmax of two gates in each channel."""
    gap = even_gate - odd_gate
    return even * tl.sigmoid(gap) + odd * tl.sigmoid(-gap)
