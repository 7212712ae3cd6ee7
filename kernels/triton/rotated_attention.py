"""Attention of rows as they come from the projection, in Triton.

A few single rows run in one kernel: a program norms and rotates the queries of its kv head and the
row's own key, which it keeps in registers, and the first program of a head writes it. Keys that
were there before the step are asked for ahead of the kernel that makes q (`overlap.py`): no kernel
of a step writes them. Other steps take one operator after the other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import rotated_attention as reference
from ..reference.rotated_attention import PagedKeys, Rotation, WindowKeys
from .attention import (
    LOG2_E,
    ROW_LANES,
    Parts,
    Tiles,
    absorb,
    begin_own,
    check_heads,
    combine,
    finished,
    store_part,
)
from .device import num_processors
from .kv_write import kv_write
from .overlap import await_previous, begin_next, overlap_options, overlaps
from .paged_attention import paged_attention
from .rope import qk_norm_rope, rope
from .window_attention import window_attention

BLOCK = 8192  # elements of the keys, and of the values, that a program asks for at a time


def rotated_paged_attention(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, keys: PagedKeys, scale: float
) -> Tensor:
    """See `reference.rotated_attention.rotated_paged_attention`. Where there are as many runs as
    rows, each run is one row. A row at a position outside the table becomes NaN."""
    if torch.float64 in (q.dtype, keys.k.dtype):
        return reference.rotated_paged_attention(q, k, v, rotation, keys, scale)
    if not _is_few(q, k, keys.runs):
        _rotate(q, k, rotation)
        kv_write(k, v, keys.k, keys.v, keys.dst)
        return paged_attention(q, keys.k, keys.v, keys.table, keys.runs, scale)
    _check(q, k, v, rotation, (keys.k, keys.v, keys.runs))
    page_size, kv_heads, size = keys.k.shape[1:]
    tiles = _tiles(q, kv_heads)
    parts = Parts.empty(q, len(q), kv_heads, keys.table.shape[1] * page_size, tiles.keys)
    out, norm = torch.empty(q.shape, dtype=q.dtype, device=q.device), _norm(rotation)
    _paged_kernel[(len(q), kv_heads, parts.splits)](
        q, k, v, *norm, rotation.cos_sin, keys.k, keys.v, keys.dst, keys.table, keys.runs, out,
        parts.sums, parts.weights, q.stride(0), k.stride(0), v.stride(0), keys.table.stride(0),
        rotation.cos_sin.shape[0], scale * LOG2_E, PAGE=page_size, KV_HEADS=kv_heads,
        **_sizes(q, kv_heads, tiles, parts, rotation), **overlap_options(),
    )  # fmt: skip
    _combine(parts, out, keys.runs, (1, 2))
    return out


def rotated_window_attention(
    q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, keys: WindowKeys, scale: float
) -> Tensor:
    """See `reference.rotated_attention.rotated_window_attention`. Where there are as many runs as
    rows, each run is one row. A row at a position outside the table, or one that sees a position
    which the ring does not hold (rule S5), becomes NaN."""
    if torch.float64 in (q.dtype, keys.k.dtype):
        return reference.rotated_window_attention(q, k, v, rotation, keys, scale)
    if not _is_few(q, k, keys.runs):
        _rotate(q, k, rotation)
        return window_attention(
            q, k, v, keys.k, keys.v, keys.tags, keys.runs, keys.window, scale
        )  # fmt: skip
    _check(q, k, v, rotation, (keys.k, keys.v, keys.tags, keys.runs))
    ring_rows, kv_heads, size = keys.k.shape[1:]
    if ring_rows < keys.window:
        raise ValueError(f"a ring of {ring_rows} rows holds no window of {keys.window}")
    tiles = _tiles(q, kv_heads)
    parts = Parts.empty(q, len(q), kv_heads, keys.window, tiles.keys)
    out, norm = torch.empty(q.shape, dtype=q.dtype, device=q.device), _norm(rotation)
    _window_kernel[(len(q), kv_heads, parts.splits)](
        q, k, v, *norm, rotation.cos_sin, keys.k, keys.v, keys.tags, keys.runs, out,
        parts.sums, parts.weights, q.stride(0), k.stride(0), v.stride(0),
        rotation.cos_sin.shape[0], scale * LOG2_E, WINDOW=keys.window, RING=ring_rows,
        KV_HEADS=kv_heads, **_sizes(q, kv_heads, tiles, parts, rotation), **overlap_options(),
    )  # fmt: skip
    _combine(parts, out, keys.runs, (3, 2))
    return out


def _is_few(q: Tensor, k: Tensor, runs: Tensor) -> bool:
    """Single rows, so few that the device is not filled without splitting their keys."""
    is_single = len(q) == len(k) == len(runs) > 0
    return is_single and len(q) * k.shape[1] <= max(1, num_processors() // 4)


def _tiles(q: Tensor, kv_heads: int) -> Tiles:
    """Two blocks of keys and of values lie in registers."""
    group, size = q.shape[1] // kv_heads, q.shape[2]
    wide = max(16, triton.next_power_of_2(size)) * q.element_size() // 2
    keys = max(16, min(64, BLOCK // wide))
    return Tiles(max(ROW_LANES, triton.next_power_of_2(group)), 1, keys, 4, 1)


def _check(q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, pool: tuple[Tensor, ...]) -> None:
    check_heads(q, k, v)
    check_heads(q, pool[0], pool[1])
    if not all(x.is_contiguous() for x in pool):
        raise TypeError("pools and runs must be contiguous")
    if rotation.cos_sin.shape[1] != q.shape[2] or q.shape[2] % 2:
        raise ValueError(f"heads of {q.shape[2]} and a table of {rotation.cos_sin.shape[1]}")


def _rotate(q: Tensor, k: Tensor, rotation: Rotation) -> None:
    if rotation.norm is None:
        rope(q, k, rotation.positions, rotation.cos_sin)
    else:
        qk_norm_rope(q, k, rotation.norm, rotation.positions, rotation.cos_sin)


def _norm(rotation: Rotation) -> tuple[Tensor, Tensor, float]:
    norm = rotation.norm
    if norm is None:
        return rotation.cos_sin, rotation.cos_sin, 0.0
    return norm.q_weight, norm.k_weight, norm.eps


def _sizes(
    q: Tensor, kv_heads: int, tiles: Tiles, parts: Parts, rotation: Rotation
) -> dict[str, int | bool]:
    size = q.shape[2]
    return {
        "GROUP": q.shape[1] // kv_heads,
        "SIZE": size,
        "BLOCK_D": max(16, triton.next_power_of_2(size)),
        "LANES": tiles.lanes,
        "KEYS": tiles.keys,
        "SPLITS": parts.splits,
        "HAS_NORM": rotation.norm is not None,
        "OVERLAPS": overlaps(),
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


def _combine(parts: Parts, out: Tensor, runs: Tensor, fields: tuple[int, int]) -> None:
    if parts.splits > 1:
        first, entered = fields
        size = out.shape[2]
        combine[(len(out), out.shape[1])](
            parts.sums, parts.weights, out, runs, out.shape[1],
            WIDTH=runs.shape[1], FIRST=first, ENTERED=entered, SPLITS=parts.splits, SIZE=size,
            BLOCK_D=max(16, triton.next_power_of_2(size)),
            OVERLAPS=overlaps(), **overlap_options(),
        )  # fmt: skip


@triton.jit
def _paged_kernel(
    q, k, v, q_weight, k_weight, eps, cos_sin, k_pages, v_pages, dst, table, runs, out, sums,
    weights, q_row, k_row, v_row, table_row, num_positions, scale, PAGE: tl.constexpr,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK_D: tl.constexpr,
    LANES: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, HAS_NORM: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    begin_next(OVERLAPS)
    run, kv, split = tl.program_id(0).to(tl.int64), tl.program_id(1) * SIZE, tl.program_id(2)
    lane, column = tl.arange(0, LANES), tl.arange(0, BLOCK_D)[None, :]
    at, position = tl.load(runs + run * 4 + 1), tl.load(runs + run * 4 + 3).to(tl.int32)
    pages, inside = table + tl.load(runs + run * 4) * table_row, column < SIZE
    share = tl.cdiv(tl.cdiv(position, SPLITS), KEYS) * KEYS
    first = split * share
    last = tl.minimum(position, first + share)
    k_pages, v_pages = k_pages + kv, v_pages + kv
    keys, values = _pages_block(k_pages, v_pages, pages, first, last, q, column, PAGE, KV_HEADS,
                                SIZE, KEYS)  # fmt: skip
    cos, sin = _angles(cos_sin, position, column, num_positions, SIZE)
    to = tl.load(dst + at)
    cached = tl.load(pages + position // PAGE).to(tl.int64) * PAGE + position % PAGE
    await_previous(OVERLAPS)
    head, used = tl.program_id(1) * GROUP + lane, (lane < GROUP)[:, None] & inside
    of_head = q + at * q_row + head[:, None] * SIZE
    queries = _rotated(of_head, q_weight, cos, sin, used, eps, SIZE, BLOCK_D, HAS_NORM)
    place = tl.where(to >= 0, to, cached) * KV_HEADS * SIZE
    own_k, own_v = _own_row(
        k + at * k_row + kv, v + at * v_row + kv, k_pages + place, v_pages + place, k_weight, cos,
        sin, eps, split == 0, to >= 0, SIZE, BLOCK_D, HAS_NORM,
    )  # fmt: skip
    score = tl.sum(queries.to(tl.float32) * own_k, 1) * scale
    best, weight, total = begin_own(score, own_v, split == 0)
    for start in range(first, last, KEYS):
        more_keys, more_values = _pages_block(k_pages, v_pages, pages, start + KEYS, last, q,
                                              column, PAGE, KV_HEADS, SIZE, KEYS)  # fmt: skip
        seen = (start + tl.arange(0, KEYS) < last)[None, :] & (lane >= 0)[:, None]
        best, weight, total = absorb(queries, keys, values, seen, best, weight, total, scale, True)
        keys, values = more_keys, more_values
    _put(out, sums, weights, best, weight, total, run, at, head[:, None], (lane < GROUP)[:, None],
         split, KV_HEADS * GROUP, SPLITS, SIZE)  # fmt: skip


@triton.jit
def _window_kernel(
    q, k, v, q_weight, k_weight, eps, cos_sin, ring_k, ring_v, tags, runs, out, sums, weights,
    q_row, k_row, v_row, num_positions, scale, WINDOW: tl.constexpr, RING: tl.constexpr,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK_D: tl.constexpr,
    LANES: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr, HAS_NORM: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    begin_next(OVERLAPS)
    run, kv, split = tl.program_id(0).to(tl.int64), tl.program_id(1) * SIZE, tl.program_id(2)
    this, lane, column = runs + run * 7, tl.arange(0, LANES), tl.arange(0, BLOCK_D)[None, :]
    ring, position = tl.load(this) * RING, tl.load(this + 5).to(tl.int32)
    lowest = tl.maximum(tl.load(this + 6).to(tl.int32), position - WINDOW + 1)
    share = tl.cdiv(tl.cdiv(position - lowest, SPLITS), KEYS) * KEYS
    first, last = lowest + split * share, tl.minimum(position, lowest + (split + 1) * share)
    ring_k, ring_v, inside = ring_k + kv, ring_v + kv, column < SIZE
    keys, values, poison = _ring_block(ring_k, ring_v, tags, ring, first, last, q, column, RING,
                                       KV_HEADS, SIZE, KEYS)  # fmt: skip
    cos, sin = _angles(cos_sin, position, column, num_positions, SIZE)
    await_previous(OVERLAPS)
    at, head = tl.load(this + 1), tl.program_id(1) * GROUP + lane
    of_head, used = q + at * q_row + head[:, None] * SIZE, (lane < GROUP)[:, None] & inside
    queries = _rotated(of_head, q_weight, cos, sin, used, eps, SIZE, BLOCK_D, HAS_NORM)
    tag, place = tags + ring + position % RING, (ring + position % RING) * KV_HEADS * SIZE
    tl.store(tag, position.to(tl.int64), mask=(kv == 0) & (split == 0))
    own_k, own_v = _own_row(
        k + at * k_row + kv, v + at * v_row + kv, ring_k + place, ring_v + place, k_weight, cos,
        sin, eps, split == 0, position >= 0, SIZE, BLOCK_D, HAS_NORM,
    )  # fmt: skip
    score = tl.sum(queries.to(tl.float32) * own_k, 1) * scale
    best, weight, total = begin_own(score, own_v, split == 0)
    for start in range(first, last, KEYS):
        more_keys, more_values, more_poison = _ring_block(
            ring_k, ring_v, tags, ring, start + KEYS, last, q, column, RING, KV_HEADS, SIZE, KEYS
        )
        seen = (start + tl.arange(0, KEYS) < last)[None, :] & (lane >= 0)[:, None]
        best, weight, total = absorb(queries, keys, values, seen, best, weight, total, scale, True)
        weight += tl.sum(poison, 0)
        keys, values, poison = more_keys, more_values, more_poison
    _put(out, sums, weights, best, weight, total, run, at, head[:, None], (lane < GROUP)[:, None],
         split, KV_HEADS * GROUP, SPLITS, SIZE)  # fmt: skip


@triton.jit
def _pages_block(
    k_pages, v_pages, pages, first, end, like, column, PAGE: tl.constexpr, KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Keys and values of positions from `first` on, none from `end` on."""
    key = first + tl.arange(0, KEYS)
    page = tl.load(pages + key // PAGE, mask=key < end, other=0).to(tl.int64)
    place = (page * PAGE + key % PAGE)[:, None] * KV_HEADS * SIZE + column
    there = (key < end)[:, None] & (column < SIZE)
    keys = tl.load(k_pages + place, mask=there, other=0.0).to(like.dtype.element_ty)
    values = tl.load(v_pages + place, mask=there, other=0.0).to(like.dtype.element_ty)
    return keys, values


@triton.jit
def _ring_block(
    ring_k, ring_v, tags, ring, first, end, like, column, RING: tl.constexpr,
    KV_HEADS: tl.constexpr, SIZE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """As `_pages_block`, with NaN for each position that its row of the ring does not hold."""
    key = first + tl.arange(0, KEYS)
    row = ring + key % RING
    there = (key < end)[:, None] & (column < SIZE)
    place = row[:, None] * KV_HEADS * SIZE + column
    keys = tl.load(ring_k + place, mask=there, other=0.0)
    values = tl.load(ring_v + place, mask=there, other=0.0)
    held = tl.load(tags + row, mask=key < end, other=0) == key
    poison = tl.where(held | (key >= end), 0.0, float("nan"))
    return keys.to(like.dtype.element_ty), values.to(like.dtype.element_ty), poison


@triton.jit
def _angles(cos_sin, position, column, num_positions, SIZE: tl.constexpr):
    """Of each column: the cosine of what is there, the signed sine of its partner."""
    known = (position >= 0) & (position < num_positions) & (column < SIZE)
    place = cos_sin + position.to(tl.int64) * SIZE + column % (SIZE // 2)
    cos = tl.load(place, mask=known, other=float("nan")).to(tl.float32)
    sin = tl.load(place + SIZE // 2, mask=known, other=float("nan")).to(tl.float32)
    return cos, tl.where(column < SIZE // 2, -sin, sin)


@triton.jit
def _rotated(
    of_head, weight, cos, sin, used, eps, SIZE: tl.constexpr, BLOCK_D: tl.constexpr,
    HAS_NORM: tl.constexpr,
):  # fmt: skip
    """Heads as `rope.py` would have stored them; 0 where they are not used."""
    column = tl.arange(0, BLOCK_D)[None, :]
    partner = (column + SIZE // 2) % SIZE
    here, there = tl.load(of_head + column, mask=used), tl.load(of_head + partner, mask=used)
    kind = here.dtype
    here = tl.where(used, here.to(tl.float32), 0.0)
    there = tl.where(used, there.to(tl.float32), 0.0)
    if HAS_NORM:
        factor = tl.rsqrt(tl.sum(here * here, 1) / SIZE + eps)[:, None]
        scale = tl.load(weight + column, mask=column < SIZE, other=0.0).to(tl.float32)
        of_partner = tl.load(weight + partner, mask=column < SIZE, other=0.0).to(tl.float32)
        here = (here * factor * scale).to(kind).to(tl.float32)
        there = (there * factor * of_partner).to(kind).to(tl.float32)
    return tl.where(used, here * cos + there * sin, 0.0).to(kind)


@triton.jit
def _own_row(
    k, v, k_pool, v_pool, weight, cos, sin, eps, is_writer, is_new, SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    """A row's own key and value as the pool keeps them: written by one program where they are new,
    read where they are there already."""
    column = tl.arange(0, BLOCK_D)[None, :]
    inside = column < SIZE
    key = _rotated(k, weight, cos, sin, inside, eps, SIZE, BLOCK_D, HAS_NORM)
    key = key.to(k_pool.dtype.element_ty)
    value = tl.load(v + column, mask=inside, other=0.0).to(v_pool.dtype.element_ty)
    cached = inside & (is_new == 0)
    old_key = tl.load(k_pool + column, mask=cached, other=0.0)
    old_value = tl.load(v_pool + column, mask=cached, other=0.0)
    tl.store(k_pool + column, key, mask=inside & is_writer & is_new)
    tl.store(v_pool + column, value, mask=inside & is_writer & is_new)
    key, value = tl.where(is_new, key, old_key), tl.where(is_new, value, old_value)
    return key.to(tl.float32), value.to(tl.float32)


@triton.jit
def _put(
    out, sums, weights, best, weight, total, run, at, head, used, split, HEADS: tl.constexpr,
    SPLITS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """What a program found: the result where it saw all, else its part."""
    if SPLITS == 1:
        column = tl.arange(0, total.shape[1])[None, :]
        result = finished(weight, total).to(out.dtype.element_ty)
        tl.store(out + (at * HEADS + head) * SIZE + column, result, mask=used & (column < SIZE))
    else:
        part = (run * HEADS + head) * SPLITS + split
        store_part(sums, weights, best, weight, total, part, used, SIZE)
