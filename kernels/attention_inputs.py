"""Seeded requests, pools and steps for the tests and benches of attention.

A `Stream` holds the q, k and v rows of one request at positions 0 .. n - 1; a `Span` is the part of
it that one call runs. `window_step` and `paged_step` put spans side by side into one call of an
operator, as the worker does, and hand the output rows back span by span. Whatever belongs to nobody
(ring rows, unused pages, the sink) holds NaN, so that a stray read shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .reference.kv_write import kv_write

NAN = float("nan")

WindowOp = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, float], Tensor]
PagedOp = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows are slices of one fused tensor, as a model's projection makes them: strided."""

    shape: Shape
    q: Tensor  # [n, H, D]
    k: Tensor  # [n, K, D]
    v: Tensor  # [n, K, D]


@dataclass(frozen=True, slots=True)
class Span:
    """Positions start .. end - 1; the last `q_rows` of them attend (all by default)."""

    stream: Stream
    slot: int
    start: int
    end: int
    q_rows: int = -1
    floor: int = 0

    @property
    def queries(self) -> int:
        return self.end - self.start if self.q_rows < 0 else self.q_rows


@dataclass(frozen=True, slots=True)
class Rings:
    k: Tensor  # [S, C, K, D]
    v: Tensor
    tags: Tensor  # [S, C]


@dataclass(frozen=True, slots=True)
class Pages:
    k: Tensor  # [N, P, K, D]
    v: Tensor
    table: Tensor  # [S, max_pages]


def make_stream(shape: Shape, rows: int, seed: int, dtype: torch.dtype = torch.float32) -> Stream:
    """Normal rows; a few large keys make some weights extreme."""
    generator = torch.Generator().manual_seed(seed)
    widths = [shape.heads, shape.kv_heads, shape.kv_heads]
    fused = torch.randn(rows, sum(widths), shape.head_dim, generator=generator, dtype=dtype)
    q, k, v = torch.split(fused, widths, dim=1)
    k[torch.rand(rows, generator=generator) < 0.02] *= 4
    return Stream(shape, q, k, v)


def make_rings(shape: Shape, slots: int, ring_rows: int, dtype: torch.dtype) -> Rings:
    """Empty rings, their bytes NaN."""
    size = (slots, ring_rows, shape.kv_heads, shape.head_dim)
    k, v = torch.full(size, NAN, dtype=dtype), torch.full(size, NAN, dtype=dtype)
    return Rings(k, v, torch.full(size[:2], -1))


def make_pages(
    shape: Shape, ends: Sequence[int], page_size: int, dtype: torch.dtype, seed: int = 0
) -> Pages:
    """Pages for slot 1 + i up to position `ends[i]`, scattered over the pool, their bytes NaN.
    Table entries beyond a request's end are 0, the sink. The highest page id is in use.
    """
    counts = [-(-end // page_size) for end in ends]
    num_pages = sum(counts) + 2
    ids = 1 + torch.randperm(num_pages - 1, generator=torch.Generator().manual_seed(seed))
    table = torch.zeros(len(ends) + 1, max(counts, default=0) + 1, dtype=torch.int32)
    for i, count in enumerate(counts):
        table[i + 1, :count] = ids[sum(counts[:i]) :][:count]
    size = (num_pages, page_size, shape.kv_heads, shape.head_dim)
    return Pages(torch.full(size, NAN, dtype=dtype), torch.full(size, NAN, dtype=dtype), table)


def window_step(
    op: WindowOp, spans: Sequence[Span], rings: Rings, window: int, padding: int = 0
) -> list[Tensor]:
    """One call for all spans, with `padding` NaN rows behind the last."""
    runs, q_start, k_start = [], 0, 0
    for x in spans:
        rows = x.end - x.start
        runs.append([x.slot, k_start, rows, q_start, x.queries, x.start, x.floor])
        q_start, k_start = q_start + x.queries, k_start + rows
    q = _rows([x.stream.q[x.end - x.queries : x.end] for x in spans], padding)
    k = _rows([x.stream.k[x.start : x.end] for x in spans], padding)
    v = _rows([x.stream.v[x.start : x.end] for x in spans], padding)
    table = torch.tensor(runs).reshape(-1, 7)
    scale = spans[0].stream.shape.scale
    out = op(q, k, v, rings.k, rings.v, rings.tags, table, window, scale)
    return list(torch.split(out[:q_start], [x.queries for x in spans]))


def paged_step(op: PagedOp, spans: Sequence[Span], pages: Pages, padding: int = 0) -> list[Tensor]:
    """One call for all spans, whose keys and values are written to their pages first."""
    runs, q_start = [], 0
    for x in spans:
        write_span(x, pages)
        runs.append([x.slot, q_start, x.queries, x.end - x.queries])
        q_start += x.queries
    q = _rows([x.stream.q[x.end - x.queries : x.end] for x in spans], padding)
    table = torch.tensor(runs).reshape(-1, 4)
    out = op(q, pages.k, pages.v, pages.table, table, spans[0].stream.shape.scale)
    return list(torch.split(out[:q_start], [x.queries for x in spans]))


def write_span(span: Span, pages: Pages) -> None:
    """Put the span's keys and values where the page table says."""
    page_size = pages.k.shape[1]
    x = torch.arange(span.start, span.end)
    dst = pages.table[span.slot, x // page_size].long() * page_size + x % page_size
    rows = slice(span.start, span.end)
    kv_write(span.stream.k[rows], span.stream.v[rows], pages.k, pages.v, dst)


def _rows(parts: Sequence[Tensor], padding: int) -> Tensor:
    """Parts joined, then `padding` rows of NaN; rows keep a stride larger than their width."""
    heads, head_dim = parts[0].shape[1:]
    total = sum(len(x) for x in parts)
    wide = torch.full((total + padding, heads + 1, head_dim), NAN, dtype=parts[0].dtype)
    if total:
        wide[:total, :heads] = torch.cat(list(parts))
    return wide[:, :heads]
