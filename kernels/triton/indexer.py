"""Sparse selection on a device for float32. Specification: `reference/indexer.py`, which other
dtypes run.

A row's best entries are found without sorting: four histograms of its keys' bytes, from the highest
on, give the key of the last entry that is chosen; one more pass lists those above it and the first
of those equal to it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import indexer as reference
from .small_floats import INFINITY, sortable

SCORED_ROWS, SCORED_ENTRIES = 8, 64  # of a program
BLOCK = 2048  # entries that a program looks at together
HIDDEN = tl.constexpr(-2139095041)  # key of -infinity
NEWEST = tl.constexpr(0x7F800000)  # key of infinity


def index_scores(q: Tensor, weight: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
    """See `reference.indexer.index_scores`. Raises `ValueError` when sizes disagree."""
    rows, heads, size = q.shape
    if any(x.dtype is not torch.float32 for x in (q, weight, keys)):
        return reference.index_scores(q, weight, keys, visible)
    if weight.shape != (rows, heads) or keys.shape[1] != size or visible.shape != (rows,):
        raise ValueError(f"index_scores of q {tuple(q.shape)}, keys {tuple(keys.shape)}")
    q, weight, keys, visible = (x.contiguous() for x in (q, weight, keys, visible))
    entries = len(keys)
    out = q.new_empty(rows, entries)
    if out.numel():
        blocks = (max(16, triton.next_power_of_2(n)) for n in (heads, size))
        grid = (triton.cdiv(entries, SCORED_ENTRIES), triton.cdiv(rows, SCORED_ROWS))
        _index_scores[grid](
            q, weight, keys, visible, out, rows, entries, heads, size,
            SCORED_ROWS, SCORED_ENTRIES, *blocks,
        )  # fmt: skip
    return out


def select_entries(scores: Tensor, count: int) -> Tensor:
    """See `reference.indexer.select_entries`."""
    if scores.dtype is not torch.float32:
        return reference.select_entries(scores, count)
    rows, entries = scores.shape
    out = torch.full((rows, count), -1, dtype=torch.int64, device=scores.device)
    if rows and entries and count:
        _select[(rows,)](scores.contiguous(), out, entries, count, False, _block(entries))
    return out


def candidate_blocks(scores: Tensor, visible: Tensor, block: int, count: int) -> Tensor:
    """See `reference.indexer.candidate_blocks`."""
    if scores.dtype is not torch.float32:
        return reference.candidate_blocks(scores, visible, block, count)
    rows, entries = scores.shape
    num_blocks = triton.cdiv(entries, block)
    best = torch.empty(rows, num_blocks, dtype=torch.int32, device=scores.device)
    kept = torch.zeros(rows, num_blocks, dtype=torch.bool, device=scores.device)
    if rows and entries and count:
        together = max(1, 1024 // triton.next_power_of_2(block))
        grid = (rows, triton.cdiv(num_blocks, together))
        _best_of_blocks[grid](
            scores.contiguous(), visible, best, entries, num_blocks, block,
            together, triton.next_power_of_2(block),
        )  # fmt: skip
        _select[(rows,)](best, kept, num_blocks, min(count, num_blocks), True, _block(num_blocks))
    return kept.repeat_interleave(block, 1)[:, :entries]


def _block(entries: int) -> int:
    return min(BLOCK, max(16, int(triton.next_power_of_2(entries))))


@triton.jit(do_not_specialize=["rows", "entries"])
def _index_scores(
    q, weight, keys, visible, out, rows, entries, heads, size,
    ROWS: tl.constexpr, ENTRIES: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    channel, head = tl.arange(0, SIZE), tl.arange(0, HEADS)
    is_entry, is_channel, is_head = entry < entries, channel < size, head < heads
    found = tl.load(
        keys + entry[:, None] * size + channel[None, :],
        is_entry[:, None] & is_channel[None, :],
        other=0.0,
    )
    for place in range(ROWS):
        row = tl.program_id(1).to(tl.int64) * ROWS + place
        if row < rows:
            at = q + row * heads * size + head[None, :] * size + channel[:, None]
            query = tl.load(at, is_channel[:, None] & is_head[None, :], other=0.0)
            factor = tl.load(weight + row * heads + head, is_head, other=0.0)
            dots = tl.dot(found, query, input_precision="ieee")
            score = tl.sum(tl.where(dots > 0.0, dots, 0.0) * factor[None, :], 1)
            score = tl.where(entry < tl.load(visible + row), score, -INFINITY)
            tl.store(out + row * entries + entry, score, is_entry)


@triton.jit(do_not_specialize=["entries", "num_blocks"])
def _best_of_blocks(
    scores, visible, best, entries, num_blocks, size, BLOCKS: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    block, place = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS), tl.arange(0, SIZE)
    entry = block[:, None] * size + place[None, :]
    inside = (entry < entries) & (place < size)[None, :]
    keys = sortable(tl.load(scores + row * entries + entry, inside, other=-INFINITY))
    largest = tl.max(keys, 1)
    seen = tl.load(visible + row)
    is_newest = (seen > 0) & (block == (seen - 1) // size)
    tl.store(best + row * num_blocks + block, tl.where(is_newest, NEWEST, largest),
             block < num_blocks)  # fmt: skip


@triton.jit
def _keys_of(values, start, entries, BLOCK: tl.constexpr):
    """Entries from `start` on as unsigned keys in their order, and which of them are visible."""
    entry = start + tl.arange(0, BLOCK)
    inside = entry < entries  # bound: entries that exist
    found = tl.load(values + entry, inside, other=0)
    if found.dtype == tl.float32:
        found = sortable(found)
    return (found ^ -2147483648).to(tl.uint32, bitcast=True), inside & (found > HIDDEN)


@triton.jit
def _last_chosen(values, entries, count, BLOCK: tl.constexpr):
    """The key of the last entry that is chosen, and how many entries of that key are."""
    number = tl.arange(0, 256)
    key, left = tl.full([], 0, tl.uint32), count
    for step in tl.static_range(4):
        shift = 24 - 8 * step
        histogram = tl.zeros([256], tl.int32)
        for start in range(0, entries, BLOCK):
            keys, is_in = _keys_of(values, start, entries, BLOCK)
            if step > 0:
                is_in = is_in & ((keys >> (shift + 8)) == (key >> (shift + 8)))
            histogram += tl.histogram(((keys >> shift) & 255).to(tl.int32), 256, mask=is_in)
        upwards = tl.sum(histogram, 0) - tl.cumsum(histogram, 0) + histogram
        byte = tl.max(tl.where(upwards >= left, number, 0), 0)
        left -= tl.sum(tl.where(number > byte, histogram, 0), 0)
        key = key | (byte.to(tl.uint32) << shift)
    return key, left


@triton.jit(do_not_specialize=["entries"])
def _select(values, out, entries, count, IS_MARKING: tl.constexpr, BLOCK: tl.constexpr):
    """Writes the numbers of the `count` best entries of a row, or marks them. `out` is filled with
    what others have."""
    row = tl.program_id(0).to(tl.int64)
    values += row * entries
    seen = 0
    for start in range(0, entries, BLOCK):
        _, is_in = _keys_of(values, start, entries, BLOCK)
        seen += tl.sum(is_in.to(tl.int32), 0)
    wanted = tl.minimum(seen, count)
    last, left = _last_chosen(values, entries, wanted, BLOCK)
    written = 0
    for start in range(0, entries, BLOCK):
        keys, is_in = _keys_of(values, start, entries, BLOCK)
        equal = (is_in & (keys == last)).to(tl.int32)
        before = tl.cumsum(equal, 0) - equal
        taken = is_in & ((keys > last) | ((equal != 0) & (before < left))) & (wanted > 0)
        left -= tl.sum(equal, 0)
        entry = start + tl.arange(0, BLOCK)
        if IS_MARKING:
            tl.store(out + row * entries + entry, taken, entry < entries)
        else:
            one = taken.to(tl.int32)
            place = written + tl.cumsum(one, 0) - one
            tl.store(out + row * count + place, entry.to(tl.int64), taken)  # bound: `wanted`
            written += tl.sum(one, 0)
