"""Mixtures of experts on a device. Specification: `reference/moe.py`, which other dtypes run.

    pairs (row, choice) --sort by expert--> tiles of pairs of one expert
    first kernel    x of a tile @ gate and up of its expert -> activation * weight, per pair
    second kernel   that @ down of the expert -> per pair
    third kernel    the pairs of a row, by ascending expert -> row

Nothing waits for the device: there are as many tiles as there may be at most, and those that turn
out empty return at once. A row's bits depend on no other row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import moe as reference
from ..reference.moe import Experts
from ..reference.packed_linear import BLOCK, MatrixKind
from .packed_linear import (
    FP4,
    IS_FAST,
    SOME_ROWS,
    G,
    add_group,
    first_bytes,
    parts_of,
    prepare,
    unrolled,
)
from .small_floats import sortable

MANY_ROWS = 64  # of a tile; products of 16 inputs have the same bits by either instruction
COLUMNS = 32  # output features of a program: of gate and of up
DOWN_COLUMNS = 64
ACTIVATION_BLOCK = 512


def route(logits: Tensor, bias: Tensor, count: int, factor: float) -> tuple[Tensor, Tensor]:
    """See `reference.moe.route`. Raises `ValueError` when sizes disagree."""
    rows, experts = logits.shape
    if logits.dtype is not torch.float32 or bias.dtype is not torch.float32 or count > experts:
        return reference.route(logits, bias, count, factor)
    if bias.shape != (experts,):
        raise ValueError(f"route of {experts} experts with a bias {tuple(bias.shape)}")
    logits, bias = logits.contiguous(), bias.contiguous()
    chosen = torch.empty(rows, count, dtype=torch.int64, device=logits.device)
    weights = logits.new_empty(rows, count)
    if rows and count:
        blocks = (triton.next_power_of_2(experts), triton.next_power_of_2(count))
        _route[(rows,)](logits, bias, chosen, weights, experts, count, factor, *blocks)
    return chosen, weights


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """See `reference.moe.clamped_swiglu`; two halves of one matrix are read where they lie."""
    if not _is_rows(gate) or not _is_rows(up) or gate.shape != up.shape:
        return reference.clamped_swiglu(gate, up, limit)
    rows, size = gate.shape
    out = gate.new_empty(rows, size)
    if out.numel():
        grid = (rows, triton.cdiv(size, ACTIVATION_BLOCK))
        strides = (gate.stride(0), up.stride(0))
        _clamped_swiglu[grid](gate, up, *strides, out, size, limit, ACTIVATION_BLOCK)
    return out


def moe_experts(x: Tensor, chosen: Tensor, weights: Tensor, experts: Experts) -> Tensor:
    """See `reference.moe.moe_experts`. Raises `ValueError` when sizes disagree."""
    gate_up, down = experts.gate_up, experts.down
    if x.dtype is not torch.float32 or {gate_up.kind, down.kind} != {MatrixKind.FP4}:
        return reference.moe_experts(x, chosen, weights, experts)
    _check_sizes(x, chosen, weights, experts)
    rows, width = x.shape
    count, inner_size = chosen.shape[1], down.in_features
    out = torch.zeros_like(x)
    if not chosen.numel() or not experts.count:
        return out
    chosen, weights = chosen.contiguous(), weights.contiguous()
    tiles = Tiles.of(chosen, experts)
    parts, is_rounding = parts_of(is_rounding=experts.is_rounding), experts.is_rounding
    inputs = prepare(x.contiguous(), MatrixKind.FP4, 1, is_rounding=is_rounding)
    inner = x.new_empty(rows * count, inner_size)
    _gate_up[(triton.cdiv(inner_size, COLUMNS), tiles.count)](
        inputs, gate_up.data, gate_up.scales, weights, inner, *tiles.tensors,
        count, width, inner_size, experts.count, experts.limit,
        parts, tiles.rows, COLUMNS, unrolled(width), IS_FAST,
    )  # fmt: skip
    inner = prepare(inner, MatrixKind.FP4, 1, is_rounding=is_rounding)
    found = x.new_empty(rows * count, width)
    _down[(triton.cdiv(width, DOWN_COLUMNS), tiles.count)](
        inner, down.data, down.scales, found, *tiles.tensors, width, inner_size, experts.count,
        parts, tiles.rows, DOWN_COLUMNS, unrolled(inner_size), IS_FAST,
    )  # fmt: skip
    block = min(1024, triton.next_power_of_2(width))
    _combine[(rows, triton.cdiv(width, block))](
        found, chosen, out, count, width, experts.first, experts.count,
        triton.next_power_of_2(count), block,
    )  # fmt: skip
    return out


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pairs sorted by expert and cut into tiles. `order` [pairs]: numbers of pairs; `starts`
    [E + 1] in it; `ends` [E]: tiles up to and with those of an expert; `expert` [tiles], E for a
    tile that is empty."""

    order: Tensor
    starts: Tensor
    ends: Tensor
    expert: Tensor
    rows: int

    @property
    def count(self) -> int:
        return len(self.expert)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.order, self.starts, self.ends, self.expert

    @classmethod
    def of(cls, chosen: Tensor, experts: Experts) -> Tiles:
        count, pairs = experts.count, chosen.numel()
        rows = SOME_ROWS if pairs <= 4 * count * SOME_ROWS else MANY_ROWS
        own = chosen.flatten() - experts.first
        own = torch.where((own < 0) | (own >= count), count, own)
        in_order, order = torch.sort(own, stable=True)
        numbers = torch.arange(count + 1, device=chosen.device)
        starts = torch.searchsorted(in_order, numbers)
        ends = ((starts[1:] - starts[:-1] + rows - 1) // rows).cumsum(0)
        most = min(pairs, pairs // rows + count)
        places = torch.arange(most, device=chosen.device)
        return cls(order, starts, ends, torch.searchsorted(ends, places, right=True), rows)


def _check_sizes(x: Tensor, chosen: Tensor, weights: Tensor, experts: Experts) -> None:
    """Raises `ValueError` as `moe_experts` does."""
    width, inner = x.shape[1], experts.down.in_features
    if (
        experts.gate_up.in_features != width
        or experts.gate_up.out_features != experts.count * 2 * inner
        or width % BLOCK
        or inner % BLOCK
        or chosen.shape != weights.shape
        or len(chosen) != len(x)
    ):
        raise ValueError(f"{experts.count} experts of {inner} on rows {tuple(x.shape)}")


def _is_rows(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.dim() == 2 and x.stride(1) == 1


@triton.jit
def _softplus(x):
    """log(1 + exp(x)), exact to the last places also where that is small."""
    e = tl.exp(-tl.abs(x))
    s = e / (2.0 + e)  # log(1 + e) is 2 artanh(s), s at most a third
    t = s * s
    series = 1 / 17.0
    for n in tl.static_range(8):
        series = series * t + 1.0 / (15 - 2 * n)
    return tl.where(x > 20.0, x, tl.maximum(x, 0.0) + 2.0 * s * series)


@triton.jit
def _route(
    logits, bias, chosen, weights, experts, count, factor,
    BLOCK: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, BLOCK)
    inside = expert < experts  # bound: experts that exist
    scores = tl.sqrt_rn(_softplus(tl.load(logits + row * experts + expert, inside, other=0.0)))
    keys = sortable(scores + tl.load(bias + expert, inside, other=0.0))
    keys = tl.where(inside, keys, -2147483648)
    place = tl.arange(0, COUNT)
    found, kept = tl.zeros([COUNT], tl.int32), tl.zeros([COUNT], tl.float32)
    for n in range(count):
        best = tl.max(keys, 0)
        first = tl.min(tl.where(keys == best, expert, BLOCK), 0)
        score = tl.sum(tl.where(expert == first, scores, 0.0), 0)
        found = tl.where(place == n, first, found)
        kept = tl.where(place == n, score, kept)
        keys = tl.where(expert == first, -2147483648, keys)
    total = tl.sum(kept, 0) + 1e-20
    is_place = place < count
    tl.store(chosen + row * count + place, found.to(tl.int64), is_place)
    tl.store(weights + row * count + place, kept / total * factor, is_place)


@triton.jit
def _activation(gate, up, limit):
    """Clamps keep what is not a number, as comparisons with it fail."""
    gate = tl.where(gate > limit, limit, gate)
    up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
    return gate * tl.sigmoid(gate) * up


@triton.jit
def _clamped_swiglu(gate, up, gate_stride, up_stride, out, size, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size  # bound: the row's end
    g = tl.load(gate + row * gate_stride + column, inside, other=0.0)
    u = tl.load(up + row * up_stride + column, inside, other=0.0)
    tl.store(out + row * size + column, _activation(g, u, limit), inside)


@triton.jit
def _pairs_of(order, starts, ends, expert, tile, ROWS: tl.constexpr):
    """Numbers of the pairs of a tile, and which of them exist."""
    first_tile = tl.load(ends + expert - 1, expert > 0, other=0)
    place = tl.load(starts + expert) + (tile - first_tile) * ROWS + tl.arange(0, ROWS)
    exists = place < tl.load(starts + expert + 1)
    return tl.load(order + place, exists, other=0), exists


@triton.jit
def _gate_up(
    x, data, scales, weights, out, order, starts, ends, tile_experts,
    count, width, inner, experts, limit,
    PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr,
    IS_FAST: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(1)
    expert = tl.load(tile_experts + tile)
    if expert >= experts:
        return
    pair, exists = _pairs_of(order, starts, ends, expert, tile, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column, is_row = (column < inner)[None, :], exists[:, None]
    gate = expert * 2 * inner + column
    x += (pair // count)[:, None] * width
    gate_data, up_data = first_bytes(gate, width // 2), first_bytes(gate + inner, width // 2)
    gate_scales, up_scales = first_bytes(gate, width // G), first_bytes(gate + inner, width // G)
    gates, ups = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, width // G, UNROLL):
        for step in tl.static_range(UNROLL):
            gates = add_group(
                gates, x, is_row, data + gate_data[None, :], scales + gate_scales[None, :],
                is_column, start + step, width, FP4, PARTS, IS_FAST,
            )  # fmt: skip
            ups = add_group(
                ups, x, is_row, data + up_data[None, :], scales + up_scales[None, :],
                is_column, start + step, width, FP4, PARTS, IS_FAST,
            )  # fmt: skip
    weight = tl.load(weights + pair, exists, other=0.0)
    found = _activation(gates, ups, limit) * weight[:, None]
    tl.store(out + pair[:, None] * inner + column[None, :], found, is_row & is_column)


@triton.jit
def _down(
    x, data, scales, out, order, starts, ends, tile_experts, width, inner, experts,
    PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr,
    IS_FAST: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(1)
    expert = tl.load(tile_experts + tile)
    if expert >= experts:
        return
    pair, exists = _pairs_of(order, starts, ends, expert, tile, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_column, is_row = (column < width)[None, :], exists[:, None]
    feature = expert * width + column
    x += pair[:, None] * inner
    data += first_bytes(feature, inner // 2)[None, :]
    scales += first_bytes(feature, inner // G)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, inner // G, UNROLL):
        for step in tl.static_range(UNROLL):
            total = add_group(
                total, x, is_row, data, scales, is_column, start + step, inner,
                FP4, PARTS, IS_FAST,
            )  # fmt: skip
    tl.store(out + pair[:, None] * width + column[None, :], total, is_row & is_column)


@triton.jit
def _combine(
    found, chosen, out, count, width, first, experts, COUNT: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    place = tl.arange(0, COUNT)
    expert = tl.load(chosen + row * count + place, place < count, other=-1) - first
    left = (expert >= 0) & (expert < experts) & (place < count)
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(count):
        lowest = tl.min(tl.where(left, expert, experts), 0)
        taken = tl.min(tl.where(left & (expert == lowest), place, COUNT), 0)
        is_owned = taken < COUNT
        at = found + (row * count + taken) * width + column
        total += tl.load(at, inside & is_owned, other=0.0)  # bounds: width, pairs owned
        left = left & (place != taken)
    tl.store(out + row * width + column, total, inside)
