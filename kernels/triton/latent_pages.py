"""Rows of several requests against packed pages and rings on a device. Specification:
`reference/latent_pages.py`.

Nothing is unpacked in memory: a kernel reads the packed rows that its query sees and unpacks them
in registers. Which run a row belongs to is found on the device, so nothing waits for the host. A
window row that a ring should hold and does not makes its query's values not numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference.latent_pages import Choice, Pages, Rings
from .compressor import pooled
from .indexer import candidate_blocks, select_entries
from .latent_attention import LOWEST, finish
from .packed_linear import IS_FAST
from .small_floats import INFINITY, load_values, split, split_dot

HEADS, KEYS = 16, 32  # of a program, at a time
SCORED_ROWS, SCORED_ENTRIES = 8, 64
SCORED_BYTES = 1 << 30  # scores of rows in memory at a time
STORED_BYTES = 1024
WINDOW_FIELDS = tl.constexpr(7)
PAGE_FIELDS = tl.constexpr(4)
FIRST, FIRST_Q = tl.constexpr(1), tl.constexpr(3)  # fields; the second of a window run


def attend_pages(
    q: Tensor, new: Tensor, rings: Rings, pages: Pages | None, chosen: Tensor, sink: Tensor
) -> Tensor:
    """See `reference.latent_pages.attend_pages`. Raises `ValueError` when sizes disagree."""
    rows, heads, size = q.shape
    if size != rings.size or sink.shape != (heads,) or len(chosen) != rows:
        raise ValueError(f"attend_pages of q {tuple(q.shape)}, rows of {rings.size}")
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not rows:
        return out
    far = rings.rows if pages is None else pages.rows
    table = rings.runs if pages is None else pages.table
    width = 0 if pages is None else chosen.shape[1]
    ratio, far_kind = (1, rings.kind) if pages is None else (pages.ratio, pages.kind)
    _attend[(rows, triton.cdiv(heads, HEADS))](
        q.contiguous(), new.contiguous(), rings.rows, rings.tags, rings.runs,
        far, table, chosen.contiguous(), sink, out,
        len(rings.runs), heads, size, new.shape[-1], rings.tags.shape[1], rings.window,
        far.shape[1], far.shape[2], table.stride(0), width, ratio, float(size) ** -0.5,
        int(rings.kind), int(far_kind), _block(len(rings.runs)), HEADS, KEYS,
        max(16, triton.next_power_of_2(size)), IS_FAST, num_warps=8,
    )  # fmt: skip
    return out


def keep_rows(new: Tensor, rings: Rings) -> None:
    """See `reference.latent_pages.keep_rows`."""
    rows, row_bytes = new.shape
    if rows:
        block = triton.next_power_of_2(row_bytes)
        _keep[(rows,)](
            new.contiguous(), rings.rows, rings.tags, rings.runs, len(rings.runs),
            rings.tags.shape[1], row_bytes, _block(len(rings.runs)), block,
        )  # fmt: skip


def choose_entries(
    q: Tensor, weight: Tensor, pages: Pages, choice: Choice, candidates: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """See `reference.latent_pages.choose_entries`. Raises `ValueError` when sizes disagree."""
    rows, heads, size = q.shape
    if size != pages.size or weight.shape != (rows, heads):
        raise ValueError(f"choose_entries of q {tuple(q.shape)}, keys of {pages.size}")
    chosen, marked = [], []
    together = max(1, SCORED_BYTES // (4 * max(1, pages.longest)))
    for low in range(0, max(1, rows), together):
        part = slice(low, low + together)
        scores, visible = _scores(q[part], weight[part], pages, low)
        if choice.blocks:
            marked.append(candidate_blocks(scores, visible, choice.block_size, choice.blocks))
        if candidates is not None:
            scores.masked_fill_(~candidates[part, : pages.longest], float("-inf"))
        chosen.append(select_entries(scores, choice.count))
    return torch.cat(chosen), torch.cat(marked) if choice.blocks else None


def _scores(q: Tensor, weight: Tensor, pages: Pages, first: int) -> tuple[Tensor, Tensor]:
    """Scores `[T, longest]` of query rows from `first` on, and how many entries each sees."""
    rows, heads, size = q.shape
    out = torch.empty(rows, pages.longest, device=q.device)
    visible = torch.zeros(rows, dtype=torch.int64, device=q.device)
    if rows:
        blocks = (max(16, triton.next_power_of_2(n)) for n in (heads, size))
        entries = max(1, triton.cdiv(pages.longest, SCORED_ENTRIES))
        _score[(entries, triton.cdiv(rows, SCORED_ROWS))](
            q.contiguous(), weight.contiguous(), pages.rows, pages.table, pages.runs, out, visible,
            first, rows, len(pages.runs), pages.longest, heads, size,
            pages.rows.shape[1], pages.rows.shape[2], pages.table.stride(0), pages.ratio,
            int(pages.kind), _block(len(pages.runs)), SCORED_ROWS, SCORED_ENTRIES, *blocks, IS_FAST,
            num_warps=8,
        )  # fmt: skip
    return out, visible


def pool_rows(values: Tensor, gates: Tensor, tail: Tensor, runs: Tensor) -> Tensor:
    """See `reference.latent_pages.pool_rows`."""
    rows, size = values.shape
    values, gates = values.contiguous(), gates.contiguous()
    out = torch.empty_like(values)
    if rows:
        block = triton.next_power_of_2(size)
        args = (runs, len(runs), tail.shape[1], size, _block(len(runs)), block)
        _pool[(rows,)](values, gates, tail, out, *args)
        _keep_tail[(rows,)](values, gates, tail, *args)
    return out


def store_rows(pool: Tensor, dst: Tensor, rows: Tensor) -> None:
    """See `reference.latent_pages.store_rows`."""
    if len(rows):
        block = min(STORED_BYTES, triton.next_power_of_2(rows.shape[1]))
        grid = (len(rows), triton.cdiv(rows.shape[1], block))
        _store[grid](pool, dst, rows.contiguous(), rows.shape[1], block)


def _block(runs: int) -> int:
    return max(2, int(triton.next_power_of_2(max(1, runs))))


@triton.jit
def _run_of(runs, num_runs, row, FIELDS: tl.constexpr, FIELD: tl.constexpr, RUNS: tl.constexpr):
    """Pointer to the run that a row belongs to: the last that starts at or before it. Runs without
    rows start where the next does."""
    number = tl.arange(0, RUNS)
    first = tl.load(runs + number * FIELDS + FIELD, number < num_runs, other=9223372036854775807)
    return runs + (tl.sum((first <= row).to(tl.int32), 0) - 1) * FIELDS


@triton.jit
def _absorb(
    high, middle, low, values, seen, largest, total, found, scale,
    KIND: tl.constexpr, IS_FAST: tl.constexpr,
):  # fmt: skip
    """The softmax so far with some more keys [K, D], of which `seen` [K] take part."""
    scores = split_dot(high, middle, low, tl.trans(values), KIND, IS_FAST) * scale
    scores = tl.where(seen[None, :], scores, -INFINITY)
    higher = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp(scores - higher[:, None])
    correction = tl.exp(largest - higher)
    one, two, three = split(weights)
    found = found * correction[:, None]
    found += split_dot(one, two, three, values, KIND, IS_FAST)
    return higher, total * correction + tl.sum(weights, 1), found


@triton.jit
def _window_rows(
    new, rings, tags, slot, k_first, position, at, seen, row_bytes, capacity
):  # fmt: skip
    """Pointers to the packed rows of positions `at` of a slot, in the step's rows or in its ring,
    and which of those in the ring are not what it holds."""
    is_new = at >= position
    place = slot * capacity + at % capacity
    held = tl.load(tags + place, seen & (at < position), other=0)  # bound: positions seen
    row = tl.where(is_new, new + (k_first + at - position) * row_bytes, rings + place * row_bytes)
    return row, seen & (at < position) & (held != at)


@triton.jit
def _page_rows(pages, table, entry, seen, per_page, row_bytes):
    """Pointers to the packed rows of entries of a request whose page ids `table` points to."""
    page = tl.load(table + entry // per_page, seen, other=0)  # bound: entries seen
    return pages + (page.to(tl.int64) * per_page + entry % per_page) * row_bytes


@triton.jit
def _span(run, row):
    """Of a window run and one of its q rows: slot, first k row, its position, floor, own position
    of the row."""
    position = tl.load(run + 5)
    own = position + tl.load(run + 2) - tl.load(run + 4) + row - tl.load(run + 3)
    return tl.load(run), tl.load(run + 1), position, tl.load(run + 6), own


@triton.jit(do_not_specialize=["num_runs", "num_chosen"])
def _attend(
    q, new, rings, tags, runs, pages, table, chosen, sink, out,
    num_runs, heads, size, row_bytes, capacity, window,
    per_page, page_row_bytes, table_stride, num_chosen, ratio, scale,
    KIND: tl.constexpr, PAGE_KIND: tl.constexpr, RUNS: tl.constexpr, HEADS: tl.constexpr,
    KEYS: tl.constexpr, SIZE: tl.constexpr, IS_FAST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head, channel = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, SIZE)[None, :]
    is_head, is_channel = head < heads, channel < size
    offset = (row * heads + head[:, None]) * size + channel
    inside = is_head[:, None] & is_channel  # bounds: heads, channels
    high, middle, low = split(tl.load(q + offset, inside, other=0.0))
    run = _run_of(runs, num_runs, row, WINDOW_FIELDS, FIRST_Q, RUNS)
    slot, k_first, position, floor, own = _span(run, row)
    largest, total = tl.full([HEADS], LOWEST, tl.float32), tl.zeros([HEADS], tl.float32)
    found, is_broken = tl.zeros([HEADS, SIZE], tl.float32), 0
    for start in range(tl.maximum(floor, own - window + 1), own + 1, KEYS):
        at = start + tl.arange(0, KEYS)
        seen = at <= own
        rows, stale = _window_rows(
            new, rings, tags, slot, k_first, position, at, seen, row_bytes, capacity
        )
        is_broken += tl.sum(stale.to(tl.int32), 0)
        values = load_values(rows[:, None], channel, seen[:, None] & is_channel, size, KIND)
        largest, total, found = _absorb(
            high, middle, low, values, seen, largest, total, found, scale, KIND, IS_FAST
        )
    visible = tl.minimum((own + 1) // ratio, num_chosen)  # chosen entries stand first
    for start in range(0, visible, KEYS):
        place = start + tl.arange(0, KEYS)
        entry = tl.load(chosen + row * num_chosen + place, place < visible, other=-1)
        seen = entry >= 0
        rows = _page_rows(pages, table + slot * table_stride, entry, seen, per_page, page_row_bytes)
        values = load_values(rows[:, None], channel, seen[:, None] & is_channel, size, PAGE_KIND)
        largest, total, found = _absorb(
            high, middle, low, values, seen, largest, total, found, scale, PAGE_KIND, IS_FAST
        )
    result = finish(largest, total, found, tl.load(sink + head, is_head, other=0.0))
    tl.store(out + offset, tl.where(is_broken > 0, float("nan"), result), inside)


@triton.jit(do_not_specialize=["num_runs"])
def _keep(
    new, rings, tags, runs, num_runs, capacity, row_bytes, RUNS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    run = _run_of(runs, num_runs, row, WINDOW_FIELDS, FIRST, RUNS)
    slot, place, k_rows = tl.load(run), row - tl.load(run + 1), tl.load(run + 2)
    if place >= k_rows - capacity:
        position = tl.load(run + 5) + place
        to = slot * capacity + position % capacity
        byte = tl.arange(0, BLOCK)
        inside = byte < row_bytes
        tl.store(
            rings + to * row_bytes + byte, tl.load(new + row * row_bytes + byte, inside), inside
        )
        tl.store(tags + to, position)


@triton.jit(do_not_specialize=["first", "rows", "num_runs", "entries"])
def _score(
    q, weight, pages, table, runs, out, visible, first, rows, num_runs, entries, heads, size,
    per_page, row_bytes, table_stride, ratio,
    KIND: tl.constexpr, RUNS: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr,
    HEADS: tl.constexpr, SIZE: tl.constexpr, IS_FAST: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    channel, head = tl.arange(0, SIZE)[None, :], tl.arange(0, HEADS)
    is_entry, is_head = entry < entries, head < heads
    for step in range(ROWS):
        row = tl.program_id(1).to(tl.int64) * ROWS + step
        if row < rows:
            run = _run_of(runs, num_runs, first + row, PAGE_FIELDS, FIRST, RUNS)
            slot, own = tl.load(run), tl.load(run + 3) + first + row - tl.load(run + 1)
            limit = (own + 1) // ratio
            tl.store(visible + row, limit)
            score = tl.full([ENTRIES], -INFINITY, tl.float32)
            if tl.program_id(0) * ENTRIES < limit:
                seen = is_entry & (entry < limit)
                at = _page_rows(
                    pages, table + slot * table_stride, entry, seen, per_page, row_bytes
                )
                inside = seen[:, None] & (channel < size)
                keys = load_values(at[:, None], channel, inside, size, KIND)
                at_q = q + (row * heads + head[:, None]) * size + channel
                query = tl.load(at_q, is_head[:, None] & (channel < size), other=0.0)
                factor = tl.load(weight + row * heads + head, is_head, other=0.0)
                high, middle, low = split(query)
                dots = split_dot(high, middle, low, tl.trans(keys), KIND, IS_FAST)
                found = tl.sum(tl.where(dots > 0.0, dots, 0.0) * factor[:, None], 0)
                score = tl.where(seen, found, score)
            tl.store(out + row * entries + entry, score, is_entry)


@triton.jit(do_not_specialize=["num_runs"])
def _pool(
    values, gates, tail, out, runs, num_runs, capacity, size,
    RUNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    run = _run_of(runs, num_runs, row, WINDOW_FIELDS, FIRST, RUNS)
    channel = tl.arange(0, BLOCK)
    inside = channel < size
    is_first = row == tl.load(run + 1)
    place = (tl.load(run + 5) - 1) % capacity
    held = tail + ((tl.load(run) * capacity + tl.maximum(place, 0)) * 2) * size
    above = tl.maximum(row - 1, 0) * size
    before = tl.where(is_first, held, values + above)
    before_gate = tl.where(is_first, held + size, gates + above)
    found = pooled(
        tl.load(before + channel, inside, other=0.0),
        tl.load(before_gate + channel, inside, other=0.0),
        tl.load(values + row * size + channel, inside, other=0.0),
        tl.load(gates + row * size + channel, inside, other=0.0),
    )
    tl.store(out + row * size + channel, found, inside)


@triton.jit(do_not_specialize=["num_runs"])
def _keep_tail(
    values, gates, tail, runs, num_runs, capacity, size,
    RUNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    run = _run_of(runs, num_runs, row, WINDOW_FIELDS, FIRST, RUNS)
    place = row - tl.load(run + 1)
    if place >= tl.load(run + 2) - capacity:
        channel = tl.arange(0, BLOCK)
        inside = channel < size
        position = tl.load(run + 5) + place
        to = tail + ((tl.load(run) * capacity + position % capacity) * 2) * size + channel
        tl.store(to, tl.load(values + row * size + channel, inside), inside)
        tl.store(to + size, tl.load(gates + row * size + channel, inside), inside)


@triton.jit
def _store(pool, dst, rows, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    to = tl.load(dst + row)
    if to >= 0:
        byte = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = byte < size
        tl.store(pool + to * size + byte, tl.load(rows + row * size + byte, inside), inside)
