"""What dense decoders share: how parameters become layers. Structure is in the model files.

Parameters arrive under the canonical names of `loader/weights.py` (`layers.3.q`, `embed`, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from treadle.kernels.ops import QkNorm

from ..layers.attention import Attention, AttentionShape
from ..layers.batch import ForwardBatch
from ..layers.linear import Embedding, Linear, Matrix, join
from ..layers.mlp import GatedMlp
from ..layers.pools import KVPools
from ..model_config import LayerKind, ModelConfig, Rope


class Model(Protocol):
    """A decoder. `forward` returns the normed hidden rows [n, C] that leave the last layer; `head`
    makes logits [n, V] of some of them, since all at once may be more than fits.
    """

    @property
    def head(self) -> Linear: ...

    def forward(self, batch: ForwardBatch, pools: KVPools) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of a checkpoint by canonical name, matrices in their stored form."""

    config: ModelConfig
    values: Mapping[str, Matrix]
    tables: Mapping[Rope, Tensor]
    dtype: torch.dtype  # of activations

    def vector(self, name: str) -> Tensor:
        """Weights of a norm, in float32 at least: 1 + w loses too much in 16 bits."""
        value = self.values[name]
        assert isinstance(value, Tensor)
        return value.to(torch.promote_types(self.dtype, torch.float32))

    def fused(self, layer: int, names: tuple[str, ...]) -> Linear:
        """The named matrices of a layer, joined; biases are joined when the checkpoint has them."""
        prefix = f"layers.{layer}."
        weight = join([self.values[prefix + name] for name in names])
        if f"{prefix}{names[0]}_bias" not in self.values:
            return Linear(weight)
        bias = torch.cat([self.vector(f"{prefix}{n}_bias") for n in names])
        return Linear(weight, bias.to(self.dtype))

    def attention(self, layer: int) -> Attention:
        config, kind = self.config, self.config.layers[layer].kind
        peers = config.window_layers if kind is LayerKind.WINDOW else config.global_layers
        shape = AttentionShape(
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            scale=config.attention_scale,
            window=config.window if kind is LayerKind.WINDOW else 0,
            index=peers.index(layer),
        )
        norm = None
        if config.qk_norm:
            q_weight = self.vector(f"layers.{layer}.q_norm")
            norm = QkNorm(q_weight, self.vector(f"layers.{layer}.k_norm"), config.rms_norm_eps)
        return Attention(
            shape,
            qkv=self.fused(layer, ("q", "k", "v")),
            o=self.fused(layer, ("o",)),
            norm=norm,
            cos_sin=self.tables[config.layers[layer].rope],
        )

    def mlp(self, layer: int) -> GatedMlp:
        return GatedMlp(
            gate_up=self.fused(layer, ("gate", "up")),
            down=self.fused(layer, ("down",)),
            activation=self.config.activation,
        )

    def embedding(self) -> Embedding:
        return Embedding(self.values["embed"], self.config.embed_scale, self.dtype)

    def output_head(self) -> Linear:
        return Linear(self.values["embed" if self.config.tie_embeddings else "lm_head"])
