"""Rotary positions in Triton, alone or with the norm of each head before it.

One program rotates some heads of one row in place. Queries and keys of a call share the launch:
heads are counted through, queries first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import rope as reference
from ..reference.rope import QkNorm
from .overlap import await_previous, overlap_options, overlaps

HEADS_PER_PROGRAM = 4


def rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """See `reference.rope.rope`. A row at a position outside the table becomes NaN."""
    if q.dtype is torch.float64:
        reference.rope(q, k, positions, cos_sin)
        return
    _check(q, k, positions, cos_sin)
    _launch(q, k, (q, q, 0.0), positions, cos_sin)


def norm_rope(x: Tensor, weight: Tensor, positions: Tensor, cos_sin: Tensor, eps: float) -> None:
    """See `reference.rope.norm_rope`. A row at a position outside the table becomes NaN."""
    if x.dtype is torch.float64:
        reference.norm_rope(x, weight, positions, cos_sin, eps)
        return
    _check(x, x[:, :0], positions, cos_sin)
    _launch(x, x[:, :0], (weight, weight, eps), positions, cos_sin)


def qk_norm_rope(q: Tensor, k: Tensor, norm: QkNorm, positions: Tensor, cos_sin: Tensor) -> None:
    """See `reference.rope.qk_norm_rope`. A row at a position outside the table becomes NaN."""
    if q.dtype is torch.float64:
        reference.qk_norm_rope(q, k, norm, positions, cos_sin)
        return
    _check(q, k, positions, cos_sin)
    _launch(q, k, (norm.q_weight, norm.k_weight, norm.eps), positions, cos_sin)


def _check(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    size = q.shape[2]
    if positions.shape != q.shape[:1] or k.shape[0] != q.shape[0]:
        raise ValueError(f"positions {tuple(positions.shape)} of {len(q)} and {len(k)} rows")
    if cos_sin.shape[1] != size or k.shape[2] != size or size % 2:
        raise ValueError(f"heads of {size} and a table of {cos_sin.shape[1]}")
    if q.stride()[1:] != (size, 1) or (k.shape[1] and k.stride()[1:] != (size, 1)):
        raise ValueError("heads of a row must be neighbours")


def _launch(
    q: Tensor, k: Tensor, norm: tuple[Tensor, Tensor, float], positions: Tensor, cos_sin: Tensor
) -> None:
    """`norm` is the weights of queries and keys with an epsilon above 0, or without a norm 0."""
    rows, heads, size = q.shape
    every = heads + k.shape[1]
    if not rows or not every:
        return
    q_weight, k_weight, eps = norm
    block = min(HEADS_PER_PROGRAM, triton.next_power_of_2(every))
    _rope_kernel[(rows, triton.cdiv(every, block))](
        q, k, q_weight, k_weight, positions, cos_sin, q.stride(0), k.stride(0),
        heads, every, cos_sin.shape[0], eps,
        SIZE=size, HALF=triton.next_power_of_2(size // 2), HEADS=block, HAS_NORM=eps > 0,
        OVERLAPS=overlaps(), num_warps=2, **overlap_options(),
    )  # fmt: skip


@triton.jit
def _rope_kernel(
    q, k, q_weight, k_weight, positions, cos_sin, q_row, k_row, q_heads, heads, num_positions, eps,
    SIZE: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, HAS_NORM: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (column < SIZE // 2)
    is_query = head < q_heads
    of_query = q + row * q_row + head * SIZE + column
    of_key = k + row * k_row + (head - q_heads) * SIZE + column
    place = tl.where(is_query, of_query, of_key)
    position = tl.load(positions + row)
    known = (position >= 0) & (position < num_positions) & (column < SIZE // 2)
    angle = cos_sin + position * SIZE + column
    cos = tl.load(angle, mask=known, other=float("nan")).to(tl.float32)
    sin = tl.load(angle + SIZE // 2, mask=known, other=float("nan")).to(tl.float32)
    if HAS_NORM:
        weight = tl.where(is_query, q_weight + column, k_weight + column)
        low = tl.load(weight, mask=inside, other=0.0).to(tl.float32)
        high = tl.load(weight + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
    await_previous(OVERLAPS)
    first = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(place + SIZE // 2, mask=inside, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1)) / SIZE + eps)
        first = _rounded(first * scale[:, None] * low, q)
        second = _rounded(second * scale[:, None] * high, q)
    kind = q.dtype.element_ty
    tl.store(place, (first * cos - second * sin).to(kind), mask=inside)
    tl.store(place + SIZE // 2, (second * cos + first * sin).to(kind), mask=inside)


@triton.jit
def _rounded(x, like):
    """As if stored between norm and rotation, like the reference."""
    return x.to(like.dtype.element_ty).to(tl.float32)
