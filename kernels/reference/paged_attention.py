"""Attention of global layers: every earlier position, read through a page table. Specification.

A row's own key is in its page before the call: written by `kv_write`, or, for a replayed row, the
cached one (rule B6).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_tile import EVERYTHING, attend_run


def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    runs: Tensor,
    scale: float,
) -> Tensor:
    """Causal attention of each run's rows to positions 0 .. p of its request.

    Shapes: q `[T, H, D]`, rows may be strided; pages `[N, P, K, D]`; page_table `[S, max_pages]`
    int32; runs `[B, 4]` int64 of (slot = row of page_table, first q row, q rows, position of the
    first q row). Query head h reads kv head h // (H // K). Returns `[T, H, D]`; rows of no run
    are zero.
    Raises `ValueError` for a run outside q or the table, or a page outside the pool.
    """
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for index, (slot, q_start, q_rows, position) in enumerate(runs.tolist()):
        rows = slice(q_start, q_start + q_rows)
        if min(q_start, q_rows, position) < 0 or rows.stop > q.shape[0]:
            raise ValueError(f"run {index} has rows {q_start}..{rows.stop} of {q.shape[0]}")
        if q_rows == 0:
            continue
        table = _pages_of(page_table, index, slot, position + q_rows, k_pages.shape[:2])

        def load(lo: int, hi: int, table: Tensor = table) -> tuple[Tensor, Tensor]:
            x = torch.arange(lo, hi)
            page, offset = table[x // k_pages.shape[1]], x % k_pages.shape[1]
            return k_pages[page, offset], v_pages[page, offset]

        out[rows] = attend_run(q[rows], position, (EVERYTHING, 0), scale, load)
    return out


def _pages_of(page_table: Tensor, run: int, slot: int, end: int, pages: torch.Size) -> Tensor:
    """Page ids of positions 0 .. end - 1, checked."""
    num_pages, page_size = pages
    if not 0 <= slot < page_table.shape[0] or end > page_table.shape[1] * page_size:
        raise ValueError(f"run {run}: slot {slot}, end {end} is outside the page table")
    table = page_table[slot, : -(-end // page_size)].long()
    if bool(((table < 0) | (table >= num_pages)).any()):
        raise ValueError(f"run {run}: slot {slot} has a page outside the pool of {num_pages}")
    return table
