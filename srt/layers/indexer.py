"""Which compressed entries each row attends (deepseek-v41.md 3.5, 3.6).

An index source scores the entries that a row sees and lists the best; the layers above it use the
list until the next source. The cut layer also marks the blocks of entries among which the sources
above it may choose. Lists belong to rows: when rows leave the batch between layers, their lists do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops

from ..latent_config import IndexerConfig
from .quant import ScaledLinear


@dataclass(frozen=True, slots=True)
class Run:
    """Query rows of one request in a step, and what they may look at. `first` is the index of its
    first row among all query rows, `visible` [q rows] the number of entries that each sees."""

    first: int
    num_rows: int
    visible: Tensor

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.num_rows)


@dataclass(frozen=True, slots=True)
class Selection:
    """chosen [T, S] int64 entry numbers, -1 unused; candidates [T, E] bool, or None where every
    entry may be chosen (E of the longest request; beyond a request's own entries it is False)."""

    chosen: Tensor
    candidates: Tensor | None

    def keep(self, keep: Tensor | None) -> Selection:
        """The lists of the rows that stay."""
        if keep is None:
            return self
        left = None if self.candidates is None else self.candidates[keep]
        return Selection(self.chosen[keep], left)


@dataclass(slots=True, eq=False)
class Indexer:
    """Shapes: wq [heads*d, q rank], weights [heads, hidden]. `marks` is set for the cut layer,
    `is_filtered` for the sources above it."""

    config: IndexerConfig
    wq: ScaledLinear
    weights: ScaledLinear
    frequencies: Tensor
    is_rounding: bool
    marks: bool
    is_filtered: bool

    def __call__(
        self,
        x: Tensor,
        latent_q: Tensor,
        positions: Tensor,
        runs: Sequence[tuple[Run, Tensor]],
        previous: Selection | None,
    ) -> Selection:
        """Shapes, for the T query rows: x [T, hidden], latent_q [T, q rank], positions [T]; each
        run comes with the keys of its request [E, d]."""
        c = self.config
        q = self.wq(latent_q).view(-1, c.num_heads, c.head_dim)
        q = ops.rope_pairs(q, positions, self.frequencies)
        q = ops.mxfp4_round(q) if self.is_rounding else q
        weight = self.weights(x) * (c.head_dim**-0.5 * c.num_heads**-0.5)
        longest = max((len(keys) for _, keys in runs), default=0)
        chosen = torch.full((len(x), c.num_chosen), -1)
        marked = torch.zeros(len(x), longest, dtype=torch.bool) if self.marks else None
        for run, keys in runs:
            rows, entries = run.rows, len(keys)
            scores = ops.index_scores(q[rows], weight[rows], keys, run.visible)
            if marked is not None:
                marked[rows, :entries] = ops.candidate_blocks(
                    scores, run.visible, c.block_size, c.candidate_blocks
                )
            if self.is_filtered and previous is not None and previous.candidates is not None:
                scores = scores.masked_fill(~previous.candidates[rows, :entries], -torch.inf)
            chosen[rows] = ops.select_entries(scores, c.num_chosen)
        kept = previous.candidates if self.is_filtered and previous is not None else marked
        return Selection(chosen, kept)
