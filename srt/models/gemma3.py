"""Gemma 3 (text): window and global layers in a pattern, norms before and after each sublayer.

    h = h + norm(attention(norm(h)));  h = h + norm(mlp(norm(h)))

Source: Gemma 3 technical report (2025), section 2. Embeddings are scaled by sqrt(hidden size);
heads are normed before rope; window layers rotate with a base of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops

from ..layers.attention import Attention
from ..layers.batch import ForwardBatch
from ..layers.linear import Embedding, Linear
from ..layers.mlp import GatedMlp
from ..layers.pools import KVPools
from .decoder import Parameters


@dataclass(slots=True, eq=False)
class Gemma3Layer:
    attn_norm: Tensor
    attention: Attention
    post_attn_norm: Tensor
    mlp_norm: Tensor
    mlp: GatedMlp
    post_mlp_norm: Tensor


@dataclass(slots=True, eq=False)
class Gemma3:
    embed: Embedding
    layers: list[Gemma3Layer]
    norm: Tensor
    head: Linear
    eps: float

    @classmethod
    def build(cls, p: Parameters) -> Gemma3:
        layers = [
            Gemma3Layer(
                attn_norm=p.vector(f"layers.{i}.attn_norm"),
                attention=p.attention(i),
                post_attn_norm=p.vector(f"layers.{i}.post_attn_norm"),
                mlp_norm=p.vector(f"layers.{i}.mlp_norm"),
                mlp=p.mlp(i),
                post_mlp_norm=p.vector(f"layers.{i}.post_mlp_norm"),
            )
            for i in range(len(p.config.layers))
        ]
        return cls(p.embedding(), layers, p.vector("norm"), p.output_head(), p.config.rms_norm_eps)

    def forward(self, batch: ForwardBatch, pools: KVPools) -> Tensor:
        """Normed hidden rows [n, C] that leave the last layer. Writes pools."""
        residual, eps = self.embed(batch.token_ids), self.eps
        x = ops.rms_norm(residual, self.layers[0].attn_norm, eps)
        next_norms = [layer.attn_norm for layer in self.layers[1:]] + [self.norm]
        for layer, rows, next_norm in zip(self.layers, batch.layers, next_norms, strict=True):
            x = layer.attention(x, rows, batch, pools)
            residual = rows.drop(residual)
            x = ops.norm_add_rms_norm(x, residual, layer.post_attn_norm, layer.mlp_norm, eps)
            x = layer.mlp(x)
            x = ops.norm_add_rms_norm(x, residual, layer.post_mlp_norm, next_norm, eps)
        return x
