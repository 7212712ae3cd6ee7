"""Attention of window layers in Triton: rings, then the call's own rows, then the commit.

Tiles and splits: `attention.py`. Runs of more rows read the ring in one kernel and write it in the
next (rule S4). A single row writes in the kernel that reads: its place in the ring held the
position one ring before, which no row of a window sees as long as a ring is no shorter than it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import window_attention as reference
from .attention import (
    LOG2_E,
    Parts,
    Tiles,
    absorb,
    begin_own,
    check_heads,
    combine,
    find_run,
    finished,
    runs_block,
    store_part,
)
from .device import num_processors
from .overlap import await_previous, overlap_options, overlaps

COMMIT_ROWS = 16  # rows that one program of the commit writes


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, ring_k: Tensor, ring_v: Tensor, tags: Tensor, runs: Tensor,
    window: int, scale: float,
) -> Tensor:  # fmt: skip
    """See `reference.window_attention.window_attention`. Where there are as many runs as rows, each
    run is one row. A row that sees a position which the ring does not hold becomes NaN (rule S5).
    What `runs` holds is not checked. Raises `ValueError` for rings shorter than the window."""
    if q.dtype is torch.float64 or ring_k.dtype is torch.float64:
        return reference.window_attention(q, k, v, ring_k, ring_v, tags, runs, window, scale)
    check_heads(q, k, v)
    check_heads(q, ring_k, ring_v)
    if not (ring_k.is_contiguous() and ring_v.is_contiguous() and tags.is_contiguous()):
        raise TypeError("rings must be contiguous")
    if ring_k.shape[1] < window or not runs.is_contiguous():
        raise ValueError(f"a ring of {ring_k.shape[1]} rows holds no window of {window}")
    rows, num_runs = k.shape[0], runs.shape[0]
    make = torch.empty if num_runs == rows else torch.zeros
    out = make(q.shape, dtype=q.dtype, device=q.device)
    if not rows or not num_runs:
        return out
    call = (q, k, v, ring_k, ring_v, tags, runs, out)
    if num_runs != rows:
        _attend_tiles(*call, window, scale)
        _commit(k, v, ring_k, ring_v, tags, runs)
    _attend_rows(*call, window, scale)
    return out


def _attend_tiles(
    q: Tensor, k: Tensor, v: Tensor, ring_k: Tensor, ring_v: Tensor, tags: Tensor, runs: Tensor,
    out: Tensor, window: int, scale: float,
) -> None:  # fmt: skip
    """Runs of more than one row. Reads the rings."""
    ring_rows, kv_heads, size = ring_k.shape[1:]
    group = q.shape[1] // kv_heads
    tiles = Tiles.of(group, size, q.dtype)
    most = k.shape[0] // tiles.rows + runs.shape[0]
    _tile_kernel[(most, kv_heads)](
        q, k, v, ring_k, ring_v, tags, runs, out, runs.shape[0],
        q.stride(0), k.stride(0), v.stride(0), scale * LOG2_E,
        WINDOW=window, RING=ring_rows, KV_HEADS=kv_heads, GROUP=group, SIZE=size,
        BLOCK_D=max(16, triton.next_power_of_2(size)), LANES=tiles.lanes, ROWS=tiles.rows,
        KEYS=tiles.keys, BLOCK_RUNS=runs_block(runs), num_warps=tiles.warps,
        num_stages=tiles.stages,
    )  # fmt: skip


def _attend_rows(
    q: Tensor, k: Tensor, v: Tensor, ring_k: Tensor, ring_v: Tensor, tags: Tensor, runs: Tensor,
    out: Tensor, window: int, scale: float,
) -> None:  # fmt: skip
    """Runs of one row. Reads and writes the rings."""
    ring_rows, kv_heads, size = ring_k.shape[1:]
    group, num_runs = q.shape[1] // kv_heads, runs.shape[0]
    is_alone = num_runs * kv_heads <= num_processors() // 4
    tiles = Tiles.of_row(group, size, q.dtype, is_alone=is_alone)
    parts = Parts.empty(q, num_runs, kv_heads, window)
    block_d = max(16, triton.next_power_of_2(size))
    _row_kernel[(num_runs, kv_heads, parts.splits)](
        q, k, v, ring_k, ring_v, tags, runs, out, parts.sums, parts.weights,
        q.stride(0), k.stride(0), v.stride(0), scale * LOG2_E,
        WINDOW=window, RING=ring_rows, KV_HEADS=kv_heads, GROUP=group, SIZE=size, BLOCK_D=block_d,
        LANES=tiles.lanes, KEYS=tiles.keys, SPLITS=parts.splits, num_warps=tiles.warps,
        num_stages=tiles.stages, OVERLAPS=overlaps(), **overlap_options(),
    )  # fmt: skip
    if parts.splits > 1:
        combine[(num_runs, q.shape[1])](
            parts.sums, parts.weights, out, runs, q.shape[1],
            WIDTH=7, FIRST=3, ENTERED=2, SPLITS=parts.splits, SIZE=size, BLOCK_D=block_d,
            OVERLAPS=overlaps(), **overlap_options(),
        )  # fmt: skip


def _commit(
    k: Tensor, v: Tensor, ring_k: Tensor, ring_v: Tensor, tags: Tensor, runs: Tensor
) -> None:
    """The last rows of runs of more than one row go to their rings."""
    ring_rows, kv_heads, size = ring_k.shape[1:]
    blocks = triton.cdiv(min(k.shape[0], ring_rows), COMMIT_ROWS)
    _commit_kernel[(runs.shape[0], blocks)](
        k, v, ring_k, ring_v, tags, runs, k.stride(0), v.stride(0),
        RING=ring_rows, WIDTH=kv_heads * size, ROWS=COMMIT_ROWS, BLOCK=256,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_runs"])
def _tile_kernel(
    q, k, v, ring_k, ring_v, tags, runs, out, num_runs, q_row, k_row, v_row, scale,
    WINDOW: tl.constexpr, RING: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    SIZE: tl.constexpr, BLOCK_D: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, BLOCK_RUNS: tl.constexpr,
):  # fmt: skip
    run, place = find_run(runs, num_runs, tl.program_id(0), 7, 2, ROWS, BLOCK_RUNS)
    if run < num_runs:
        kv_head, this = tl.program_id(1), runs + run * 7
        slot, k_start, q_start = tl.load(this), tl.load(this + 1), tl.load(this + 3)
        k_rows, q_rows = tl.load(this + 2).to(tl.int32), tl.load(this + 4).to(tl.int32)
        new, floor = tl.load(this + 5).to(tl.int32), tl.load(this + 6).to(tl.int32)
        lane, column = tl.arange(0, LANES), tl.arange(0, BLOCK_D)[None, :]
        row = place * ROWS + lane // GROUP
        used = ((lane < ROWS * GROUP) & (row < q_rows))[:, None] & (column < SIZE)
        head = kv_head * GROUP + lane % GROUP
        at = (q_start + row)[:, None]
        queries = tl.load(q + at * q_row + head[:, None] * SIZE + column, mask=used, other=0.0)
        first = new + k_rows - q_rows + place * ROWS  # position of the tile's first row
        end = tl.minimum(first + ROWS, new + k_rows)
        start = tl.maximum(floor, first - WINDOW + 1)
        positions = new + k_rows - q_rows + row
        best = tl.full((LANES,), -float("inf"), tl.float32)
        weight = tl.zeros((LANES,), tl.float32)
        total = tl.zeros((LANES, BLOCK_D), tl.float32)
        if place * ROWS < q_rows:
            best, weight, total = _walk_ring(
                queries, ring_k + kv_head * SIZE, ring_v + kv_head * SIZE, tags, slot * RING,
                positions, start, tl.minimum(end, new), floor, best, weight, total, scale,
                WINDOW, RING, KV_HEADS * SIZE, SIZE, KEYS,
            )  # fmt: skip
            best, weight, total = _walk_rows(
                queries, k + k_start * k_row + kv_head * SIZE, v + k_start * v_row + kv_head * SIZE,
                ring_k, k_row, v_row, new, positions, tl.maximum(start, new), end, floor,
                best, weight, total, scale, WINDOW, SIZE, KEYS,
            )  # fmt: skip
        to = out + (at * KV_HEADS * GROUP + head[:, None]) * SIZE + column
        tl.store(to, finished(weight, total).to(out.dtype.element_ty), mask=used)


@triton.jit
def _row_kernel(
    q, k, v, ring_k, ring_v, tags, runs, out, sums, weights, q_row, k_row, v_row, scale,
    WINDOW: tl.constexpr, RING: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    SIZE: tl.constexpr, BLOCK_D: tl.constexpr, LANES: tl.constexpr, KEYS: tl.constexpr,
    SPLITS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(0).to(tl.int64)
    await_previous(OVERLAPS)
    if tl.load(runs + run * 7 + 2) == 1:
        kv_head, split, this = tl.program_id(1), tl.program_id(2), runs + run * 7
        slot, k_start, q_start = tl.load(this), tl.load(this + 1), tl.load(this + 3)
        position, floor = tl.load(this + 5).to(tl.int32), tl.load(this + 6).to(tl.int32)
        lane, column = tl.arange(0, LANES), tl.arange(0, BLOCK_D)[None, :]
        place, inside = slot * RING + position % RING, column < SIZE
        tl.store(tags + place, position.to(tl.int64), mask=(kv_head == 0) & (split == 0))
        kv = kv_head * SIZE + column
        to_ring = place * KV_HEADS * SIZE + kv
        own_k = _own(k + k_start * k_row + kv, ring_k + to_ring, inside, split == 0)
        own_v = _own(v + k_start * v_row + kv, ring_v + to_ring, inside, split == 0)
        if tl.load(this + 4) == 1:
            head = kv_head * GROUP + lane
            used = (lane < GROUP)[:, None] & (column < SIZE)
            at = q_start * q_row + head[:, None] * SIZE + column
            queries = tl.load(q + at, mask=used, other=0.0)
            score = tl.sum(queries.to(tl.float32) * own_k, 1) * scale
            best, weight, total = begin_own(score, own_v, split == 0)
            lowest = tl.maximum(floor, position - WINDOW + 1)
            share = tl.cdiv(tl.cdiv(position - lowest, SPLITS), KEYS) * KEYS
            best, weight, total = _walk_ring(
                queries, ring_k + kv_head * SIZE, ring_v + kv_head * SIZE, tags, slot * RING,
                lane * 0 + position, lowest + split * share,
                tl.minimum(position, lowest + split * share + share), floor,
                best, weight, total, scale, WINDOW, RING, KV_HEADS * SIZE, SIZE, KEYS,
            )  # fmt: skip
            if SPLITS == 1:
                to = out + (q_start * KV_HEADS * GROUP + head[:, None]) * SIZE + column
                tl.store(to, finished(weight, total).to(out.dtype.element_ty), mask=used)
            else:
                part = ((run * KV_HEADS * GROUP + head) * SPLITS + split)[:, None]
                store_part(sums, weights, best, weight, total, part, (lane < GROUP)[:, None], SIZE)


@triton.jit
def _own(source, ring, inside, is_writer):
    """A single row's own key or value as the ring keeps it, where one program writes it."""
    value = tl.load(source, mask=inside, other=0.0).to(ring.dtype.element_ty)
    tl.store(ring, value, mask=inside & is_writer)
    return value.to(tl.float32)


@triton.jit
def _walk_ring(
    q, ring_k, ring_v, tags, slot_row, positions, start, end, floor, best, weight, total, scale,
    WINDOW: tl.constexpr, RING: tl.constexpr, ROW: tl.constexpr, SIZE: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Earlier positions start .. end - 1. A row of the ring that holds another one is poison."""
    column = tl.arange(0, q.shape[1])[None, :]
    for first in range(start, end, KEYS):
        key = first + tl.arange(0, KEYS)
        row = slot_row + key % RING
        there = (key < end)[:, None] & (column < SIZE)
        k = tl.load(ring_k + row[:, None] * ROW + column, mask=there, other=0.0).to(q.dtype)
        v = tl.load(ring_v + row[:, None] * ROW + column, mask=there, other=0.0).to(q.dtype)
        held = tl.load(tags + row, mask=key < end, other=0) == key
        poison = tl.where(held | (key >= end), 0.0, float("nan"))
        seen = _in_window(key, positions, end, floor, WINDOW)
        best, weight, total = absorb(q, k, v, seen, best, weight, total, scale, True)
        weight += tl.sum(tl.where(seen, poison[None, :], 0.0), 1)
    return best, weight, total


@triton.jit
def _walk_rows(
    q, k_rows, v_rows, pool, k_row, v_row, new, positions, start, end, floor, best, weight, total,
    scale, WINDOW: tl.constexpr, SIZE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Positions start .. end - 1, from `new` on: rows of this call, rounded like the pool."""
    column = tl.arange(0, q.shape[1])[None, :]
    kind = pool.dtype.element_ty
    for first in range(start, end, KEYS):
        key = first + tl.arange(0, KEYS)
        row = (key - new).to(tl.int64)[:, None]
        there = (key < end)[:, None] & (column < SIZE)
        k = tl.load(k_rows + row * k_row + column, mask=there, other=0.0).to(kind).to(q.dtype)
        v = tl.load(v_rows + row * v_row + column, mask=there, other=0.0).to(kind).to(q.dtype)
        seen = _in_window(key, positions, end, floor, WINDOW)
        best, weight, total = absorb(q, k, v, seen, best, weight, total, scale, True)
    return best, weight, total


@triton.jit
def _in_window(key, positions, end, floor, WINDOW: tl.constexpr):
    """[M, N]: which keys each row sees."""
    inside = (key < end) & (key >= floor)
    key, row = key[None, :], positions[:, None]
    return inside[None, :] & (key <= row) & (key > row - WINDOW)


@triton.jit
def _commit_kernel(
    k, v, ring_k, ring_v, tags, runs, k_row, v_row,
    RING: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    this = runs + tl.program_id(0) * 7
    k_rows = tl.load(this + 2).to(tl.int32)
    dropped = tl.maximum(k_rows - RING, 0)
    first = dropped + tl.program_id(1) * ROWS
    if (k_rows > 1) & (first < k_rows):
        slot, k_start, position = tl.load(this), tl.load(this + 1), tl.load(this + 5)
        row = first + tl.arange(0, ROWS)
        place = slot * RING + (position + row) % RING
        tl.store(tags + place, position + row, mask=row < k_rows)
        source = (k_start + row)[:, None]
        for start in range(0, WIDTH, BLOCK):
            column = start + tl.arange(0, BLOCK)[None, :]
            there = (row < k_rows)[:, None] & (column < WIDTH)
            key = tl.load(k + source * k_row + column, mask=there)
            value = tl.load(v + source * v_row + column, mask=there)
            to = place[:, None] * WIDTH + column
            tl.store(ring_k + to, key.to(ring_k.dtype.element_ty), mask=there)
            tl.store(ring_v + to, value.to(ring_v.dtype.element_ty), mask=there)
