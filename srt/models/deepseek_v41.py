"""DeepSeek-V4.1: the decoder as a list of layers (deepseek-v41.md 2.1, 2.4).

Streams [T, N, D] run through layers of attention and experts; `pre` says how much of each stream
the next sublayer reads. Rows leave between layers as the batch's schedule says: a replayed row
where nothing above reads it, a prompt row at the cut when the decoder is trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops

from ..layers.batch import ForwardBatch
from ..layers.engram import Engram
from ..layers.hyper import Sublayer
from ..layers.indexer import Selection
from ..layers.latent_attention import LatentAttention
from ..layers.latent_pools import LatentPools
from ..layers.moe import Moe
from ..layers.quant import ScaledLinear


@dataclass(slots=True, eq=False)
class Layer:
    engram: Engram | None
    attention_streams: Sublayer
    attention: LatentAttention
    moe_streams: Sublayer
    moe: Moe


@dataclass(slots=True, eq=False)
class DeepseekV41:
    """Shapes: embed and head [V, D], norm [D]."""

    embed: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: ScaledLinear
    num_streams: int
    taps: tuple[int, ...]
    eps: float

    def forward(self, batch: ForwardBatch, pools: LatentPools) -> Tensor:
        """Normed hidden rows [n, D] that leave the last layer."""
        return self.run(batch, pools)[0]

    def run(self, batch: ForwardBatch, pools: LatentPools) -> tuple[Tensor, Tensor]:
        """`forward`, and the taps [T, taps*D] of the rows that enter the last layer: what the
        draft head reads of them."""
        x = self.embed[batch.token_ids].unsqueeze(1).repeat(1, self.num_streams, 1)
        pre = x.new_zeros(len(x), self.num_streams)
        pre[:, 0] = 1.0
        chosen: Selection | None = None
        ids = batch.ngrams
        taps = x.new_zeros(len(x), 0)
        for index, (layer, rows) in enumerate(zip(self.layers, batch.layers, strict=True)):
            if layer.engram is not None:
                assert ids is not None
                x = layer.engram(x, ids)
            if index in self.taps:
                taps = torch.cat((taps, x.mean(1)), 1)
            y = layer.attention_streams.read(x, pre)
            y, chosen = layer.attention(y, rows, batch, pools, chosen)
            x, pre = layer.attention_streams.write(rows.drop(x), y)
            x, pre = layer.moe_streams.write(x, layer.moe(layer.moe_streams.read(x, pre)))
            ids = None if ids is None else rows.drop(ids)
            taps = taps if index + 1 == len(self.layers) else rows.drop(taps)
        return ops.rms_norm(ops.hyper_collapse(x, pre), self.norm, self.eps), taps
