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
        latent = ops.rms_norm(pooled, self.norm, self.eps)
        entry = ops.rope_pairs(latent, positions, self.frequencies)
        keys = self.key(latent, positions)
        formats, pool = pools.formats, pools.sources[self.layer]
        ops.store_rows(pool.entries.flatten(0, 1), dst, formats.entry.encode(entry))
        ops.store_rows(pool.keys.flatten(0, 1), dst, formats.key.encode(keys))

    def _pool(
        self, x: Tensor, rows: LayerRows, pools: LatentPools
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Per row that enters: what an entry would be made of [R, D], the position of the entry's
        first token, and where the entry goes in the pool, -1 where none is complete or new."""
        if self.wgate is None:
            return self.wkv(x), rows.positions, rows.page_dst
        tail = pools.tails[self.layer]
        pooled = ops.pool_rows(self.wkv(x), self.wgate(x), tail, rows.window_runs)
        is_done = (rows.page_dst >= 0) & (rows.positions % 2 == 1)
        return pooled, rows.positions - 1, torch.where(is_done, rows.page_dst // 2, -1)
