"""Rotary pairs on a device. Specification: `reference/rope_pairs.py`. Other dtypes than float32 run
the reference.

A program copies one row of one head and turns its last channels. Angles are taken in float32, as
the reference takes them: what a position times a frequency rounds to is the model's own.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import rope_pairs as reference


def rope_pairs(
    x: Tensor, positions: Tensor, frequencies: Tensor, *, inverse: bool = False
) -> Tensor:
    """See `reference.rope_pairs.rope_pairs`. Raises `ValueError` when sizes disagree."""
    if x.dtype is not torch.float32 or frequencies.dtype is not torch.float32:
        return reference.rope_pairs(x, positions, frequencies, inverse=inverse)
    rows, size, half = x.shape[0], x.shape[-1], frequencies.shape[0]
    if positions.shape != (rows,) or 2 * half > size or positions.dtype is not torch.int64:
        raise ValueError(f"{tuple(positions.shape)} positions, {half} pairs, x {tuple(x.shape)}")
    x, positions, frequencies = x.contiguous(), positions.contiguous(), frequencies.contiguous()
    out = torch.empty_like(x)
    heads = x.shape[1:-1].numel()
    if rows and heads:
        _turn[(rows, heads)](
            x,
            positions,
            frequencies,
            out,
            heads,
            size,
            half,
            -1.0 if inverse else 1.0,
            triton.next_power_of_2(max(1, half)),
            triton.next_power_of_2(max(1, size - 2 * half)),
        )
    return out


@triton.jit
def _turn(
    x,
    positions,
    frequencies,
    out,
    heads,
    size,
    half,
    sign,
    PAIR_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = (row * heads + tl.program_id(1)) * size
    rest = tl.arange(0, REST_BLOCK)
    is_rest = rest < size - 2 * half
    tl.store(out + at + rest, tl.load(x + at + rest, is_rest), is_rest)  # bound: before the pairs
    pair = tl.arange(0, PAIR_BLOCK)
    is_pair = pair < half
    angle = tl.load(positions + row).to(tl.float32) * tl.load(frequencies + pair, is_pair, other=0)
    angle = angle * sign
    cos, sin = tl.cos(angle), tl.sin(angle)
    turned = at + size - 2 * half + 2 * pair
    even = tl.load(x + turned, is_pair, other=0.0)  # bound: pairs that exist
    odd = tl.load(x + turned + 1, is_pair, other=0.0)
    tl.store(out + turned, even * cos - odd * sin, is_pair)
    tl.store(out + turned + 1, even * sin + odd * cos, is_pair)
