"""Llama, Qwen2 and Qwen3 (dense), SmolLM2: pre-norm decoders with a gated MLP.

    h = h + attention(norm(h));  h = h + mlp(norm(h))

Source: Llama (Touvron et al. 2023), section 2.2. Qwen2 adds biases on q, k and v; Qwen3 a norm
per head on q and k. Both are facts of `ModelConfig`, not branches here.
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
class LlamaLayer:
    attn_norm: Tensor
    attention: Attention
    mlp_norm: Tensor
    mlp: GatedMlp


@dataclass(slots=True, eq=False)
class Llama:
    embed: Embedding
    layers: list[LlamaLayer]
    norm: Tensor
    head: Linear
    eps: float

    @classmethod
    def build(cls, p: Parameters) -> Llama:
        layers = [
            LlamaLayer(
                attn_norm=p.vector(f"layers.{i}.attn_norm"),
                attention=p.attention(i),
                mlp_norm=p.vector(f"layers.{i}.mlp_norm"),
                mlp=p.mlp(i),
            )
            for i in range(len(p.config.layers))
        ]
        return cls(p.embedding(), layers, p.vector("norm"), p.output_head(), p.config.rms_norm_eps)

    def forward(self, batch: ForwardBatch, pools: KVPools) -> Tensor:
        """Normed hidden rows [n, C] that leave the last layer. Writes pools."""
        residual = self.embed(batch.token_ids)
        x = ops.rms_norm(residual, self.layers[0].attn_norm, self.eps)
        next_norms = [layer.attn_norm for layer in self.layers[1:]] + [self.norm]
        for layer, rows, next_norm in zip(self.layers, batch.layers, next_norms, strict=True):
            x = layer.attention(x, rows, batch, pools)
            residual = rows.drop(residual)
            x = ops.add_rms_norm(x, residual, layer.mlp_norm, self.eps)
            x = ops.add_rms_norm(layer.mlp(x), residual, next_norm, self.eps)
        return x
