"""Latent attention of DeepSeek-V4.1: one shared key-value per position (deepseek-v41.md 2.5, 2.6).

    x -> wq_a -> norm -> wq_b -> rope -> q of all heads
    x -> wkv  -> norm -> rope -> latent: key and value of every head, packed into the window ring
    q attends its window and the entries that an indexer chose, in one softmax with a sink
    out -> inverse rope -> grouped projection -> wo_b

Owns the reading of rings and pages for its rows. Tiles of query rows bound the memory of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import PackedMatrix

from .batch import ForwardBatch, LayerRows
from .compressor import Compressor
from .indexer import Indexer, Run, Selection
from .latent_pools import LatentPools
from .quant import ScaledLinear

TILE = 128  # query rows attended at once


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
            runs = list(self._runs_with(rows, batch, pools, keys=True))
            chosen = self.indexer(rows.drop(x), latent_q, positions, runs, chosen)
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

    def _runs_with(
        self, rows: LayerRows, batch: ForwardBatch, pools: LatentPools, *, keys: bool
    ) -> Iterator[tuple[Run, Tensor]]:
        """The runs that have query rows, each with its request's keys or entries, decoded."""
        pool = pools.sources[self.shape.source]
        packed = pool.keys if keys else pool.entries
        row_format = pools.formats.key if keys else pools.formats.entry
        for slot, first, count, position in rows.paged_runs.tolist():
            visible = (torch.arange(position, position + count) + 1) // pool.ratio
            num_entries = (position + count) // pool.ratio
            found = pool.read(packed, batch.page_table[slot], num_entries)
            yield Run(first, count, visible), row_format.decode(found)

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
        lists = torch.full((len(q), 0), -1) if chosen is None or not s.ratio else chosen.chosen
        entries: dict[int, Tensor] = {}
        if s.ratio:
            found = self._runs_with(rows, batch, pools, keys=False)
            entries = {run.first: values for run, values in found}
        nothing = latent.new_zeros(0, s.head_dim)
        packed = pools.formats.window.encode(latent)
        out = torch.zeros_like(q)
        for slot, k_first, k_rows, q_first, q_rows, position, floor in rows.window_runs.tolist():
            new = packed[k_first : k_first + k_rows]
            if q_rows:
                reach = Reach(position + k_rows - q_rows, floor, s.window)
                old = pools.window_rows(s.layer, slot, reach.lowest, position)
                near = torch.cat((old, new[max(0, reach.lowest - position) :]))
                run = slice(q_first, q_first + q_rows)
                out[run] = self._attend_run(
                    q[run],
                    pools.formats.window.decode(near),
                    reach,
                    entries.get(q_first, nothing),
                    lists[run],
                )
            pools.keep_window(s.layer, slot, position, new)
        return out

    def _attend_run(
        self, q: Tensor, near: Tensor, reach: Reach, entries: Tensor, chosen: Tensor
    ) -> Tensor:
        """Query rows of one request. Shapes: q [T, H, D], near [K, D] from `reach.lowest` on,
        entries [E, D], chosen [T, S]."""
        out = torch.empty_like(q)
        for low in range(0, len(q), TILE):
            tile = slice(low, min(low + TILE, len(q)))
            keys, mask = reach.tile(near, low, tile.stop)
            out[tile] = ops.latent_attention(q[tile], keys, mask, entries, chosen[tile], self.sink)
        return out


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
