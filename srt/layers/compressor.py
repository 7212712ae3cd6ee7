"""Compressed entries of a kv source: made from new rows, packed into pages (deepseek-v41.md 3.4).

Entry j of ratio m stands for positions j*m .. j*m + m-1 and is written when the last of them is
run as a new row. With ratio 2 the first half of a pair may have come in an earlier step: its value
and gate wait in the slot's tail.

    ratio 1    x_j ----------> norm -> latent -> entry, key
    ratio 2    x_2j, x_2j+1 -> pool -> norm -> latent -> entry, key
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops

from .batch import LayerRows
from .latent_pools import LatentPools
from .quant import ScaledLinear


@dataclass(frozen=True, slots=True)
class KeyMaker:
    """Index keys from latents: weight [d, D], norm [d], frequencies of the last channels."""

    weight: ScaledLinear
    norm: Tensor
    frequencies: Tensor
    eps: float

    def __call__(self, latent: Tensor, positions: Tensor) -> Tensor:
        key = ops.rms_norm(self.weight(latent), self.norm, self.eps)
        return ops.rope_pairs(key, positions, self.frequencies)


@dataclass(slots=True, eq=False)
class Compressor:
    """Shapes: wkv [D, hidden], wgate the same for ratio 2, norm [D]."""

    layer: int
    ratio: int
    wkv: ScaledLinear
    wgate: ScaledLinear | None
    norm: Tensor
    frequencies: Tensor
    key: KeyMaker
    eps: float

    def __call__(self, x: Tensor, rows: LayerRows, pools: LatentPools) -> None:
        """Shapes: x [R, hidden], normed, rows entering. Writes pages and tails."""
        pooled, positions, dst = self._pool(x, rows, pools)
        if not len(positions):
            return
        latent = ops.rms_norm(pooled, self.norm, self.eps)
        entry = ops.rope_pairs(latent, positions, self.frequencies)
        keys = self.key(latent, positions)
        formats, pool = pools.formats, pools.sources[self.layer]
        pool.write(dst, formats.entry.encode(entry), formats.key.encode(keys))

    def _pool(
        self, x: Tensor, rows: LayerRows, pools: LatentPools
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(pooled [E, D], position of each entry's first token, where it goes in the pool)."""
        if self.wgate is None:
            new = torch.nonzero(rows.page_dst >= 0)[:, 0]
            values = self.wkv(x[new])
            return values, rows.positions[new], rows.page_dst[new]
        values, gates = self.wkv(x), self.wgate(x)
        tail = pools.tails[self.layer]
        even, even_gate = self._previous(values, gates, rows, tail)
        self._keep(values, gates, rows, tail)
        done = torch.nonzero((rows.page_dst >= 0) & (rows.positions % 2 == 1))[:, 0]
        pooled = ops.pool_pairs(even[done], even_gate[done], values[done], gates[done])
        return pooled, rows.positions[done] - 1, rows.page_dst[done] // 2

    @staticmethod
    def _previous(
        values: Tensor, gates: Tensor, rows: LayerRows, tail: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Value and gate of the position before each row: of the row above it, or of the tail."""
        before, before_gate = values.roll(1, 0), gates.roll(1, 0)
        for slot, k_first, k_rows, _, _, position, _ in rows.window_runs.tolist():
            if k_rows and position % 2 == 1:
                place = (position - 1) % tail.shape[1]
                before[k_first], before_gate[k_first] = tail[slot, place, 0], tail[slot, place, 1]
        return before, before_gate

    @staticmethod
    def _keep(values: Tensor, gates: Tensor, rows: LayerRows, tail: Tensor) -> None:
        """The last positions of each run go to the tail, as many as it holds."""
        size = tail.shape[1]
        for slot, k_first, k_rows, _, _, position, _ in rows.window_runs.tolist():
            last = torch.arange(max(0, k_rows - size), k_rows)
            place = (position + last) % size
            tail[slot, place, 0] = values[k_first + last]
            tail[slot, place, 1] = gates[k_first + last]
