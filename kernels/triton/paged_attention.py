"""Attention of global layers in Triton. Tiles and splits: `attention.py`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import paged_attention as reference
from .attention import (
    LOG2_E,
    Parts,
    Tiles,
    absorb,
    check_heads,
    combine,
    find_run,
    finished,
    runs_block,
    store_part,
)
from .device import num_processors
from .overlap import await_previous, overlap_options, overlaps


def paged_attention(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, runs: Tensor, scale: float
) -> Tensor:
    """See `reference.paged_attention.paged_attention`. Where there are as many runs as rows, each
    run is one row. What `runs` and `page_table` hold is not checked."""
    if q.dtype is torch.float64 or k_pages.dtype is torch.float64:
        return reference.paged_attention(q, k_pages, v_pages, page_table, runs, scale)
    check_heads(q, k_pages, v_pages)
    if not (k_pages.is_contiguous() and v_pages.is_contiguous() and runs.is_contiguous()):
        raise TypeError("pages and runs must be contiguous")
    rows, num_runs = q.shape[0], runs.shape[0]
    make = torch.empty if num_runs == rows else torch.zeros
    out = make(q.shape, dtype=q.dtype, device=q.device)
    if not rows or not num_runs:
        return out
    if num_runs != rows:
        _attend_tiles(q, k_pages, v_pages, page_table, runs, scale, out)
    _attend_rows(q, k_pages, v_pages, page_table, runs, scale, out)
    return out


def _attend_tiles(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, runs: Tensor, scale: float,
    out: Tensor,
) -> None:  # fmt: skip
    """Runs of more than one row."""
    page_size, kv_heads, size = k_pages.shape[1:]
    group = q.shape[1] // kv_heads
    tiles = Tiles.of(group, size, q.dtype)
    most = q.shape[0] // tiles.rows + runs.shape[0]
    _tile_kernel[(most, kv_heads)](
        q, k_pages, v_pages, table, runs, out, runs.shape[0], q.stride(0), table.stride(0),
        scale * LOG2_E,
        PAGE=page_size, KV_HEADS=kv_heads, GROUP=group, SIZE=size,
        BLOCK_D=max(16, triton.next_power_of_2(size)), LANES=tiles.lanes, ROWS=tiles.rows,
        KEYS=tiles.keys, BLOCK_RUNS=runs_block(runs), num_warps=tiles.warps,
        num_stages=tiles.stages,
    )  # fmt: skip


def _attend_rows(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, runs: Tensor, scale: float,
    out: Tensor,
) -> None:  # fmt: skip
    """Runs of one row."""
    page_size, kv_heads, size = k_pages.shape[1:]
    group, num_runs = q.shape[1] // kv_heads, runs.shape[0]
    is_alone = num_runs * kv_heads <= num_processors() // 4
    tiles = Tiles.of_row(group, size, q.dtype, is_alone=is_alone)
    parts = Parts.empty(q, num_runs, kv_heads, table.shape[1] * page_size)
    block_d = max(16, triton.next_power_of_2(size))
    _row_kernel[(num_runs, kv_heads, parts.splits)](
        q, k_pages, v_pages, table, runs, out, parts.sums, parts.weights, q.stride(0),
        table.stride(0), scale * LOG2_E,
        PAGE=page_size, KV_HEADS=kv_heads, GROUP=group, SIZE=size, BLOCK_D=block_d,
        LANES=tiles.lanes, KEYS=tiles.keys, SPLITS=parts.splits, num_warps=tiles.warps,
        num_stages=tiles.stages, OVERLAPS=overlaps(), **overlap_options(),
    )  # fmt: skip
    if parts.splits > 1:
        combine[(num_runs, q.shape[1])](
            parts.sums, parts.weights, out, runs, q.shape[1],
            WIDTH=4, FIRST=1, ENTERED=2, SPLITS=parts.splits, SIZE=size, BLOCK_D=block_d,
            OVERLAPS=overlaps(), **overlap_options(),
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_runs"])
def _tile_kernel(
    q, k_pages, v_pages, table, runs, out, num_runs, q_row, table_row, scale,
    PAGE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    BLOCK_RUNS: tl.constexpr,
):  # fmt: skip
    run, place = find_run(runs, num_runs, tl.program_id(0), 4, 2, ROWS, BLOCK_RUNS)
    if run < num_runs:
        kv_head = tl.program_id(1)
        slot, q_start = tl.load(runs + run * 4), tl.load(runs + run * 4 + 1)
        q_rows = tl.load(runs + run * 4 + 2).to(tl.int32)
        position = tl.load(runs + run * 4 + 3).to(tl.int32)
        lane, column = tl.arange(0, LANES), tl.arange(0, BLOCK_D)[None, :]
        row = place * ROWS + lane // GROUP
        used = ((lane < ROWS * GROUP) & (row < q_rows))[:, None] & (column < SIZE)
        head = kv_head * GROUP + lane % GROUP
        at = (q_start + row)[:, None]
        queries = tl.load(q + at * q_row + head[:, None] * SIZE + column, mask=used, other=0.0)
        first = position + place * ROWS
        end = position + tl.minimum(place * ROWS + ROWS, q_rows)
        free = (first + 1) // KEYS * KEYS  # keys below are seen by all rows
        best = tl.full((LANES,), -float("inf"), tl.float32)
        weight = tl.zeros((LANES,), tl.float32)
        total = tl.zeros((LANES, BLOCK_D), tl.float32)
        pages, kv = table + slot * table_row, kv_head * SIZE
        best, weight, total = _walk(
            queries, k_pages + kv, v_pages + kv, pages, position + row, 0, free, end,
            best, weight, total, scale, PAGE, KV_HEADS * SIZE, SIZE, KEYS, False,
        )  # fmt: skip
        best, weight, total = _walk(
            queries, k_pages + kv, v_pages + kv, pages, position + row, free, end, end,
            best, weight, total, scale, PAGE, KV_HEADS * SIZE, SIZE, KEYS, True,
        )  # fmt: skip
        to = out + (at * KV_HEADS * GROUP + head[:, None]) * SIZE + column
        tl.store(to, finished(weight, total).to(out.dtype.element_ty), mask=used)


@triton.jit
def _row_kernel(
    q, k_pages, v_pages, table, runs, out, sums, weights, q_row, table_row, scale,
    PAGE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr, LANES: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(0).to(tl.int64)
    await_previous(OVERLAPS)
    if tl.load(runs + run * 4 + 2) == 1:
        kv_head, split = tl.program_id(1), tl.program_id(2)
        slot, at = tl.load(runs + run * 4), tl.load(runs + run * 4 + 1)
        end = tl.load(runs + run * 4 + 3).to(tl.int32) + 1
        lane, column = tl.arange(0, LANES), tl.arange(0, BLOCK_D)[None, :]
        head = kv_head * GROUP + lane
        used = (lane < GROUP)[:, None] & (column < SIZE)
        queries = tl.load(q + at * q_row + head[:, None] * SIZE + column, mask=used, other=0.0)
        share = ((end + SPLITS - 1) // SPLITS + KEYS - 1) // KEYS * KEYS
        best = tl.full((LANES,), -float("inf"), tl.float32)
        weight = tl.zeros((LANES,), tl.float32)
        total = tl.zeros((LANES, BLOCK_D), tl.float32)
        kv, last = kv_head * SIZE, tl.minimum(end, (split + 1) * share)
        best, weight, total = _walk(
            queries, k_pages + kv, v_pages + kv, table + slot * table_row, lane * 0 + end,
            split * share, last, last, best, weight, total, scale,
            PAGE, KV_HEADS * SIZE, SIZE, KEYS, True,
        )  # fmt: skip
        if SPLITS == 1:
            to = out + (at * KV_HEADS * GROUP + head[:, None]) * SIZE + column
            tl.store(to, finished(weight, total).to(out.dtype.element_ty), mask=used)
        else:
            part = ((run * KV_HEADS * GROUP + head) * SPLITS + split)[:, None]
            store_part(sums, weights, best, weight, total, part, (lane < GROUP)[:, None], SIZE)


@triton.jit
def _walk(
    q, k_pages, v_pages, pages, positions, start, stop, end, best, weight, total, scale,
    PAGE: tl.constexpr, ROW: tl.constexpr, SIZE: tl.constexpr, KEYS: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """The keys start .. stop - 1 of a request, in blocks; none from `end` on is there."""
    column = tl.arange(0, q.shape[1])[None, :]
    for first in range(start, stop, KEYS):
        key = first + tl.arange(0, KEYS)
        page = tl.load(pages + key // PAGE, mask=key < end, other=0).to(tl.int64)
        place = (page * PAGE + key % PAGE)[:, None] * ROW + column
        there = (key < end)[:, None] & (column < SIZE)
        k = tl.load(k_pages + place, mask=there, other=0.0).to(q.dtype)
        v = tl.load(v_pages + place, mask=there, other=0.0).to(q.dtype)
        seen = (key[None, :] <= positions[:, None]) & (key < end)[None, :]
        best, weight, total = absorb(q, k, v, seen, best, weight, total, scale, MASKED)
    return best, weight, total
