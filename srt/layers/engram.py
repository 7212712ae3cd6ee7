"""Engram: n-gram memory of a layer (deepseek-v41.md 2.9).

The table is rows of e4m3 with scales; a large model's tables are a quarter of it. Which rows are
read depends on token ids alone, a few per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops

from .quant import ScaledLinear


@dataclass(frozen=True, slots=True)
class EngramHash:
    """From token ids to table rows. token_map [V] int64 maps ids to compressed ids; multipliers
    [G], primes and offsets [G-1, heads] int64."""

    token_map: Tensor
    pad_id: int
    multipliers: Tensor
    primes: Tensor
    offsets: Tensor

    def rows(self, ids: Tensor) -> Tensor:
        """Shapes: ids [T, G] token ids of positions p, p-1, .., -1 before the first; int64
        [T, columns]."""
        compressed = torch.where(ids < 0, self.pad_id, self.token_map[ids.clamp(min=0)])
        return ops.engram_rows(compressed, self.multipliers, self.primes, self.offsets)


@dataclass(frozen=True, slots=True)
class EngramTable:
    """Views of the mapped checkpoint, codes e4m3 [rows, d] and scales uint8 [rows, d/32]: the pages
    of the file are host memory that all processes that map it share. Nothing is copied but the rows
    that are asked for."""

    codes: Tensor
    scales: Tensor

    def read(self, rows: Tensor) -> Tensor:
        """Shapes: rows int64 [...]; returns fp32 [..., d]."""
        return ops.table_rows(self.codes, self.scales, rows)


@dataclass(slots=True, eq=False)
class Engram:
    """Shapes: table [rows, d], wkv [(N+1)*D, columns*d], weight [N, D]."""

    hash: EngramHash
    table: EngramTable
    wkv: ScaledLinear
    weight: Tensor
    eps: float

    def __call__(self, x: Tensor, ids: Tensor) -> Tensor:
        """Shapes: x [T, N, D], ids [T, G] as for `EngramHash.rows`; returns [T, N, D]."""
        values = self.table.read(self.hash.rows(ids))
        fused = self.wkv(values.flatten(1)).view(len(x), x.shape[1] + 1, x.shape[2])
        return ops.engram_gate(x, fused[:, :-1], fused[:, -1], self.weight, self.eps)
