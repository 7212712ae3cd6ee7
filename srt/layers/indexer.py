"""Which compressed entries each row attends (deepseek-v41.md 3.5, 3.6).

An index source scores the entries that a row sees and lists the best; the layers above it use the
list until the next source. The cut layer also marks the blocks of entries among which the sources
above it may choose. Lists belong to rows: when rows leave the batch between layers, their lists do.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import Choice, Pages

from ..latent_config import IndexerConfig
from .quant import ScaledLinear


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
        keys: Pages,
        previous: Selection | None,
    ) -> Selection:
        """Shapes, for the T query rows: x [T, hidden], latent_q [T, q rank], positions [T]."""
        c = self.config
        q = self.wq(latent_q).view(-1, c.num_heads, c.head_dim)
        q = ops.rope_pairs(q, positions, self.frequencies)
        q = ops.mxfp4_round(q) if self.is_rounding else q
        weight = self.weights(x) * (c.head_dim**-0.5 * c.num_heads**-0.5)
        within = previous.candidates if self.is_filtered and previous is not None else None
        choice = Choice(c.num_chosen, c.candidate_blocks if self.marks else 0, c.block_size)
        chosen, marked = ops.choose_entries(q, weight, keys, choice, within)
        return Selection(chosen, marked if within is None else within)
