"""Hits at many places of one text, all against one cold run of it.

    slot 1  cold      |======================xxxx==========xxxx====|     x: logits are kept
    slot 2  a hit     |-- pages of slot 1 ---|
                                  |- replay -|xxxx|
    slot 3  a session |-- of slot 1 --|
                              |replay-|xx--|
                                   |replay-|xx--|     each turn a hit on the turns before

A hit's pages below it hold exact global K/V; a turn's hold that of all turns before, each of which
was computed behind a replay (B31). The arithmetic is the server's worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from benchmark.quality.engine import CHUNK_ROWS, Engine, Entry, make_entry
from torch import Tensor

from treadle.srt.messages import RowSpan

COLD, TRIAL, SESSION = 1, 2, 3

Rows = tuple[int, int]  # positions [first, end)


@dataclass(frozen=True, slots=True)
class Shape:
    """A replay: `depth` windows for the top layer, `slope` rows more for each layer below."""

    slope: int
    depth: int = 1


class TextRuns:
    def __init__(self, engine: Engine, tokens: Sequence[int]) -> None:
        self._engine = engine
        self._tokens = tokens
        self._size = engine.runner.page_size
        count = -(-len(tokens) // self._size)
        self._pages = [array("i", range(1 + i * count, 1 + (i + 1) * count)) for i in range(3)]

    def cold(self, wanted: Sequence[Rows]) -> list[Tensor]:
        """Logits [n, V] of each of `wanted`, which are in order and do not touch. First of all."""
        return self._run(COLD, 0, 0, wanted, make_entry(COLD, self._pages[0], 0, 0, 0))

    def hit(self, at: int, wanted: Sequence[Rows], shape: Shape) -> list[Tensor]:
        """The same after a hit of `at` tokens, where the first of `wanted` begins."""
        pages = self._pages[0][: at // self._size] + self._pages[1][at // self._size :]
        return self._hit(TRIAL, pages, at, wanted, shape)

    def session(self, hits: Sequence[int], num_rows: int, shape: Shape) -> list[Tensor]:
        """Logits [num_rows, V] from each hit on. A turn runs up to the next one's hit."""
        first = hits[0] // self._size
        pages = self._pages[0][:first] + self._pages[2][first:]
        found = []
        for at, end in zip(hits, [*hits[1:], hits[-1] + num_rows], strict=True):
            (logits,) = self._hit(SESSION, pages, at, [(at, at + num_rows)], shape)
            if end > at + num_rows:
                self._step(SESSION, (at + num_rows, at + num_rows, end), 0, None)
            found.append(logits)
        return found

    def _hit(
        self, slot: int, pages: array[int], at: int, wanted: Sequence[Rows], shape: Shape
    ) -> list[Tensor]:
        assert at % self._size == 0 and wanted[0][0] == at
        floor = self._engine.schedule(shape.slope, shape.depth).entry_start(0, at)
        entry = make_entry(slot, pages, floor, at, shape.slope, shape.depth)
        return self._run(slot, floor, at, wanted, entry)

    def _run(
        self, slot: int, start: int, computed: int, wanted: Sequence[Rows], entry: Entry | None
    ) -> list[Tensor]:
        """A replay is one span with the rows behind it (B12)."""
        found = []
        for first, end in wanted:
            while start >= computed and end - start > CHUNK_ROWS and first > start:
                stop = min(first, start + CHUNK_ROWS)
                self._step(slot, (start, start, stop), 0, entry)
                start, entry = stop, None
            rows = (start, max(start, computed), end)
            found.append(self._step(slot, rows, end - first, entry))
            start, entry = end, None
        return found

    def _step(
        self, slot: int, rows: tuple[int, int, int], sample: int, entry: Entry | None
    ) -> Tensor:
        return self._engine.step(self._tokens, [RowSpan(slot, *rows, sample)], entry)


def fast_kl(exact: Tensor, other: Tensor) -> Tensor:
    """KL of each row of logits [n, V], float64 [n]. As `drift.row_kl` to 1e-9 in a third of its
    time: with d = other - exact, it is log E[exp(d - E[d])] under the exact distribution, where
    nothing large cancels in float32."""
    probabilities = torch.softmax(exact, 1)
    change = other - exact
    change -= (probabilities * change).sum(1, keepdim=True, dtype=torch.float64).float()
    return torch.log1p((probabilities * torch.expm1(change)).sum(1, dtype=torch.float64))
