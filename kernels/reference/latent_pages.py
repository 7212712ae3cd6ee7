"""Latents where a server keeps them: packed rows in pages and rings. Specification.

    Pages   compressed entries, or their index keys: entry j of a request in page j // P' of its
            pages, place j % P' (P' entries a page)
    Rings   window rows of one layer: position q of a slot in ring row q % C, and beside it the
            position that is held there (-1: none)

Rows of one request are contiguous in a step; `runs` say which. A window reads the rings as they
were before the step, and the step's own rows from `new`; `keep_rows` commits those afterwards.
Source: deepseek-v41.md 2.6, 3.3-3.6, 4; rules S4, S5, B6.

What is computed for a request's rows is in other families; a backend hands in its own (`Parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from . import block_float, compressor, indexer
from . import latent_attention as latent
from .block_float import RowKind

TILE = 128  # query rows attended at once


@dataclass(frozen=True, slots=True)
class Pages:
    """rows uint8 `[N, P', bytes]` of `size` values; table int32 `[S, max pages]`; runs int64
    `[B, 4]`: slot, first q row, q rows, position of the first q row. An entry stands for `ratio`
    positions; `longest`: entries of the request that has most."""

    rows: Tensor
    kind: RowKind
    size: int
    ratio: int
    table: Tensor
    runs: Tensor
    longest: int


@dataclass(frozen=True, slots=True)
class Rings:
    """rows uint8 `[S, C, bytes]` of `size` values, tags int64 `[S, C]`; runs int64 `[B, 7]`: slot,
    first k row, k rows, first q row, q rows, position of the first k row, floor. A row sees
    `window` positions, its own among them, none below the floor."""

    rows: Tensor
    tags: Tensor
    kind: RowKind
    size: int
    runs: Tensor
    window: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A row chooses `count` entries. With `blocks`, it also marks so many blocks of `block_size`
    entries."""

    count: int
    blocks: int
    block_size: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The operators of single requests, by the names that they have in their families."""

    latent_attention: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    decode_rows: Callable[[Tensor, RowKind, int], Tensor]
    index_scores: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    select_entries: Callable[[Tensor, int], Tensor]
    candidate_blocks: Callable[[Tensor, Tensor, int, int], Tensor]
    pool_pairs: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


PARTS = Parts(
    latent.latent_attention,
    block_float.decode_rows,
    indexer.index_scores,
    indexer.select_entries,
    indexer.candidate_blocks,
    compressor.pool_pairs,
)


def attend_pages(
    q: Tensor, new: Tensor, rings: Rings, pages: Pages | None, chosen: Tensor, sink: Tensor
) -> Tensor:
    """`latent_attention` of rows of several requests.

    Shapes: q `[T, H, D]` of the rows that leave; new uint8 `[R, bytes]`, packed, of those that
    enter; chosen int64 `[T, S]`, S is 0 without pages; sink `[H]`. Returns `[T, H, D]`. Raises
    `RuntimeError` when a ring does not hold a position that is in a row's window (S5); a backend
    that does not wait for its device gives such a row values that are not numbers.
    """
    return attend_runs(q, new, rings, pages, chosen, sink, PARTS)


def keep_rows(new: Tensor, rings: Rings) -> None:
    """Commits packed rows `[R, bytes]` of the k rows of each run to its ring: the last C of them
    stay (S4). Writes rings."""
    capacity = rings.tags.shape[1]
    for slot, k_first, k_rows, _, _, position, _ in rings.runs.tolist():
        first = max(0, k_rows - capacity)
        positions = torch.arange(position + first, position + k_rows)
        rings.rows[slot, positions % capacity] = new[k_first + first : k_first + k_rows]
        rings.tags[slot, positions % capacity] = positions


def choose_entries(
    q: Tensor, weight: Tensor, pages: Pages, choice: Choice, candidates: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The best entries of each row among those it sees, and the blocks that it marks.

    Shapes: q `[T, H, d]`, weight `[T, H]`; candidates bool `[T, E]`, of entries that may be chosen,
    None for all. Returns int64 `[T, count]`, -1 in unused places, and bool `[T, longest]` of the
    entries in marked blocks (of entries that a row does not see it says nothing), None where none
    are marked.
    """
    return choose_runs(q, weight, pages, choice, candidates, PARTS)


def pool_rows(values: Tensor, gates: Tensor, tail: Tensor, runs: Tensor) -> Tensor:
    """Each row pooled with the position before it (`pool_pairs`), which is the row above it or, for
    a run's first row, in the tail: what is made of an even position means nothing.

    Shapes: values and gates `[R, D]`, runs as of `Rings`; returns `[R, D]`. Writes tail `[S, A, 2,
    D]`: value and gate of position q of a slot in place q % A, of the last A positions of each run.
    """
    return pool_runs(values, gates, tail, runs, PARTS)


def store_rows(pool: Tensor, dst: Tensor, rows: Tensor) -> None:
    """Writes rows `[R, n]` to places `dst` int64 `[R]` of pool `[M, n]`; -1 is nowhere."""
    new = torch.nonzero(dst >= 0)[:, 0]
    pool[dst[new]] = rows[new]


def attend_runs(  # noqa: PLR0913 - see `attend_pages`
    q: Tensor,
    new: Tensor,
    rings: Rings,
    pages: Pages | None,
    chosen: Tensor,
    sink: Tensor,
    parts: Parts,
) -> Tensor:
    """`attend_pages` with the operators of a backend."""
    entries: dict[int, Tensor] = {}
    if pages is not None:
        entries = {first: values for first, _, _, values in entries_of(pages, parts)}
    nothing = q.new_zeros(0, rings.size)
    out = torch.zeros_like(q)
    for slot, k_first, k_rows, q_first, q_rows, position, floor in rings.runs.tolist():
        if not q_rows:
            continue
        reach = Reach(position + k_rows - q_rows, floor, rings.window)
        old = _held_rows(rings, slot, reach.lowest, position)
        near = torch.cat((old, new[k_first + max(0, reach.lowest - position) : k_first + k_rows]))
        near = parts.decode_rows(near, rings.kind, rings.size)
        far = entries.get(q_first, nothing)
        for low in range(0, q_rows, TILE):
            high = min(low + TILE, q_rows)
            rows = slice(q_first + low, q_first + high)
            keys, mask = reach.tile(near, low, high)
            out[rows] = parts.latent_attention(q[rows], keys, mask, far, chosen[rows], sink)
    return out


def choose_runs(  # noqa: PLR0913 - see `choose_entries`
    q: Tensor,
    weight: Tensor,
    pages: Pages,
    choice: Choice,
    candidates: Tensor | None,
    parts: Parts,
) -> tuple[Tensor, Tensor | None]:
    """`choose_entries` with the operators of a backend."""
    chosen = torch.full((len(q), choice.count), -1)
    marked = torch.zeros(len(q), pages.longest, dtype=torch.bool) if choice.blocks else None
    for first, count, visible, keys in entries_of(pages, parts):
        rows, entries = slice(first, first + count), len(keys)
        scores = parts.index_scores(q[rows], weight[rows], keys, visible)
        if marked is not None:
            marked[rows, :entries] = parts.candidate_blocks(
                scores, visible, choice.block_size, choice.blocks
            )
        if candidates is not None:
            scores = scores.masked_fill(~candidates[rows, :entries], indexer.NOT_VISIBLE)
        chosen[rows] = parts.select_entries(scores, choice.count)
    return chosen, marked


def pool_runs(values: Tensor, gates: Tensor, tail: Tensor, runs: Tensor, parts: Parts) -> Tensor:
    """`pool_rows` with the operators of a backend."""
    before, before_gate = values.roll(1, 0), gates.roll(1, 0)
    size = tail.shape[1]
    spans = runs.tolist()
    for slot, k_first, k_rows, _, _, position, _ in spans:
        if k_rows and position % 2 == 1:
            held = tail[slot, (position - 1) % size]
            before[k_first], before_gate[k_first] = held[0], held[1]
    for slot, k_first, k_rows, _, _, position, _ in spans:
        last = torch.arange(max(0, k_rows - size), k_rows)
        tail[slot, (position + last) % size, 0] = values[k_first + last]
        tail[slot, (position + last) % size, 1] = gates[k_first + last]
    return parts.pool_pairs(before, before_gate, values, gates)


def entries_of(pages: Pages, parts: Parts) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Of each run: its first q row, how many there are, the entries that each sees `[q rows]`, and
    the entries of its request, decoded."""
    per_page = pages.rows.shape[1]
    for slot, first, count, position in pages.runs.tolist():
        num_entries = (position + count) // pages.ratio
        numbers = pages.table[slot, : -(-num_entries // per_page)].long()
        found = pages.rows[numbers].flatten(0, 1)[:num_entries]
        visible = (torch.arange(position, position + count) + 1) // pages.ratio
        yield first, count, visible, parts.decode_rows(found, pages.kind, pages.size)


def _held_rows(rings: Rings, slot: int, start: int, end: int) -> Tensor:
    """Packed rows of positions [start, end). Raises `RuntimeError` as `attend_pages` does."""
    positions = torch.arange(start, max(start, end))
    place = positions % rings.tags.shape[1]
    held = rings.tags[slot, place]
    if not torch.equal(held, positions):
        missing = int(positions[held != positions][0])
        raise RuntimeError(f"slot {slot} has no window row of position {missing}")
    return rings.rows[slot, place]


@dataclass(frozen=True, slots=True)
class Reach:
    """Window of query rows from position `first` on; nothing below `floor` is seen."""

    first: int
    floor: int
    window: int

    @property
    def lowest(self) -> int:
        return max(self.floor, self.first - self.window + 1)

    def tile(self, keys: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
        """Keys that query rows [low, high) may see, and which of them each sees; `keys` start at
        `lowest`."""
        start = max(self.floor, self.first + low - self.window + 1)
        end = self.first + high
        positions = torch.arange(start, end)
        query = torch.arange(self.first + low, end)[:, None]
        mask = (positions <= query) & (positions > query - self.window)
        return keys[start - self.lowest : end - self.lowest], mask
