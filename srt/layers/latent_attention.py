"""Latent attention of DeepSeek-V4.1: one shared key-value per position (deepseek-v41.md 2.5, 2.6).

    x -> wq_a -> norm -> wq_b -> rope -> q of all heads
    x -> wkv  -> norm -> rope -> latent: key and value of every head, packed into the window ring
    q attends its window and the entries that an indexer chose, in one softmax with a sink
    out -> inverse rope -> grouped projection -> wo_b

Rings are read as they were before the step, then its rows are committed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import PackedMatrix

from .batch import ForwardBatch, LayerRows
from .compressor import Compressor
from .indexer import Indexer, Selection
from .latent_pools import LatentPools
from .quant import ScaledLinear


@dataclass(frozen=True, slots=True)
class LatentShape:
    layer: int
    num_heads: int
    head_dim: int
    q_rank: int
    groups: int
    window: int
    ratio: int
    source: int  # the layer whose entries are attended; unused with ratio 0
    eps: float


@dataclass(slots=True, eq=False)
class LatentAttention:
    """Shapes: wq_a_kv [q rank + D, hidden], wq_b [H*D, q rank], wo_a [groups*rank, H*D/groups],
    wo_b [hidden, groups*rank], sink [H]."""

    shape: LatentShape
    wq_a_kv: ScaledLinear
    wq_b: ScaledLinear
    wo_a: PackedMatrix
    wo_b: ScaledLinear
    q_norm: Tensor
    kv_norm: Tensor
    sink: Tensor
    frequencies: Tensor
    compressor: Compressor | None
    indexer: Indexer | None

    def __call__(
        self,
        x: Tensor,
        rows: LayerRows,
        batch: ForwardBatch,
        pools: LatentPools,
        chosen: Selection | None,
    ) -> tuple[Tensor, Selection | None]:
        """Shapes: x [R, hidden], normed, rows entering; returns [O, hidden] of the rows leaving and
        their lists. Writes pools."""
        s = self.shape
        if self.compressor is not None:
            self.compressor(x, rows, pools)
        fused = self.wq_a_kv(x)
        latent = self.latents(fused[:, s.q_rank :], rows.positions)
        positions = rows.out_positions
        latent_q, q = self.queries(rows.drop(fused[:, : s.q_rank]), positions)
        chosen = chosen.keep(rows.keep) if chosen is not None else None
        if self.indexer is not None:
            keys = pools.key_pages(s.source, batch, rows)
            chosen = self.indexer(rows.drop(x), latent_q, positions, keys, chosen)
        out = self._attend(q, latent, rows, batch, pools, chosen)
        return self.project(out, positions), chosen

    def latents(self, x: Tensor, positions: Tensor) -> Tensor:
        """Keys that are values [T, D], normed and rotated, of projections x [T, D]."""
        latent = ops.rms_norm(x, self.kv_norm, self.shape.eps)
        return ops.rope_pairs(latent, positions, self.frequencies)

    def queries(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The normed low-rank query [T, q rank] of projections x, and all heads [T, H, D]."""
        s = self.shape
        latent_q = ops.rms_norm(x, self.q_norm, s.eps)
        q = self.wq_b(latent_q).view(-1, s.num_heads, s.head_dim)
        return latent_q, ops.rope_pairs(q, positions, self.frequencies)

    def project(self, out: Tensor, positions: Tensor) -> Tensor:
        """out [T, H, D] is turned back; the heads of a group are mixed into its low-rank channels,
        then all together: [T, hidden]."""
        out = ops.rope_pairs(out, positions, self.frequencies, inverse=True)
        groups = self.shape.groups
        mixed = ops.linear_packed(out.flatten(1), self.wo_a, is_rounding=False, groups=groups)
        return self.wo_b(mixed)

    def _attend(  # noqa: PLR0913 (rows, batch and pools say where everything is)
        self,
        q: Tensor,
        latent: Tensor,
        rows: LayerRows,
        batch: ForwardBatch,
        pools: LatentPools,
        chosen: Selection | None,
    ) -> Tensor:
        """Attends from the rings as they are, then commits the rows of each run (S4)."""
        s = self.shape
        entries, lists = None, torch.empty(len(q), 0, dtype=torch.int64, device=q.device)
        if s.ratio and chosen is not None:
            entries, lists = pools.entry_pages(s.source, batch, rows), chosen.chosen
        packed = pools.formats.window.encode(latent)
        rings = pools.rings(s.layer, rows.window_runs, s.window)
        out = ops.attend_pages(q, packed, rings, entries, lists, self.sink)
        ops.keep_rows(packed, rings)
        return out
