"""From a DeepSeek-V4.1 checkpoint to the layers of `deepseek_v41.py`.

Matrices stay packed and are unpacked per use; Engram tables stay in the mapped file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import Experts, HyperMatrix, PackedMatrix

from ..latent_config import LatentConfig, MoeConfig
from ..layers.compressor import Compressor, KeyMaker
from ..layers.engram import Engram, EngramHash, EngramTable
from ..layers.hyper import Sublayer
from ..layers.indexer import Indexer
from ..layers.latent_attention import LatentAttention, LatentShape
from ..layers.moe import Moe
from ..layers.quant import ScaledLinear
from ..loader.deepseek_v41_tensors import draft_moe
from ..loader.engram_map import multipliers, primes, token_map
from ..loader.packed import Weights
from ..loader.share import WHOLE, Share
from ..model_config import ModelConfig
from .deepseek_v41 import DeepseekV41, Layer
from .dspark import Dspark


@dataclass(frozen=True, slots=True)
class Builder:
    """`is_rounding`: activations are rounded as the checkpoint expects; False is for checking.
    `share`: of the experts of every layer."""

    config: ModelConfig
    latent: LatentConfig
    weights: Weights
    is_rounding: bool
    share: Share = WHOLE

    def model(self, folder: Path) -> DeepseekV41:
        """Raises: CheckpointError for a tokenizer that contradicts the configuration."""
        w, config = self.weights, self.config
        hashes = self._hashes(folder)
        return DeepseekV41(
            embed=w.dense("embed.weight"),
            layers=tuple(self._loaded(i, hashes.get(i)) for i in range(len(config.layers))),
            norm=w.dense("norm.weight"),
            head=self._dense("head.weight"),
            num_streams=self.latent.hyper.num_streams,
            taps=self.latent.draft.taps,
            eps=config.rms_norm_eps,
        )

    def draft(self, model: DeepseekV41) -> Dspark | None:
        """The draft head; None when the checkpoint has none."""
        w, draft = self.weights, self.latent.draft
        if not draft.num_blocks:
            return None
        last = f"mtp.{draft.num_blocks - 1}."
        return Dspark(
            main=self._linear("mtp.0.main_proj"),
            main_norm=w.dense("mtp.0.main_norm.weight"),
            blocks=tuple(self._draft_block(i) for i in range(draft.num_blocks)),
            norm=w.dense(last + "norm.weight"),
            markov_embed=w.dense(last + "markov_head.embed.weight"),
            markov_head=w.dense(last + "markov_head.head.weight"),
            confidence=w.dense(last + "confidence_head.proj.weight")[0],
            embed=model.embed,
            head=model.head,
            noise_id=draft.noise_id,
            block_size=draft.block_size,
            num_streams=model.num_streams,
            eps=self.config.rms_norm_eps,
        )

    def _draft_block(self, index: int) -> Layer:
        prefix, ring = f"mtp.{index}.", len(self.config.layers) + index
        return Layer(
            engram=None,
            attention_streams=self._streams(prefix, "attn"),
            attention=self.attention(prefix, ring, ratio=0, source=-1),
            moe_streams=self._streams(prefix, "ffn"),
            moe=self.moe(prefix + "ffn.", draft_moe(self.latent)),
        )

    def _loaded(self, index: int, engram_hash: EngramHash | None) -> Layer:
        made = self.layer(index, engram_hash)
        self.weights.made(index, len(self.config.layers))
        return made

    def layer(self, index: int, engram_hash: EngramHash | None) -> Layer:
        prefix, latent = f"layers.{index}.", self.latent
        ratio = latent.ratios[index]
        source = latent.kv_source(index) if ratio else -1
        attention = self.attention(prefix, index, ratio, source)
        if ratio:
            self._add_sources(attention, prefix, index)
        return Layer(
            engram=None if engram_hash is None else self._engram(prefix, engram_hash),
            attention_streams=self._streams(prefix, "attn"),
            attention=attention,
            moe_streams=self._streams(prefix, "ffn"),
            moe=self.moe(prefix + "ffn.", latent.moe),
        )

    def attention(self, prefix: str, index: int, ratio: int, source: int) -> LatentAttention:
        w, c, latent, attn = self.weights, self.config, self.latent, prefix + "attn."
        shape = LatentShape(
            layer=index,
            num_heads=c.num_heads,
            head_dim=c.head_dim,
            q_rank=latent.q_rank,
            groups=latent.o_groups,
            window=c.window,
            ratio=ratio,
            source=source,
            eps=c.rms_norm_eps,
        )
        return LatentAttention(
            shape,
            wq_a_kv=self._linear(attn + "wq_a", attn + "wkv"),
            wq_b=self._linear(attn + "wq_b"),
            wo_a=w.scaled(attn + "wo_a"),
            wo_b=self._linear(attn + "wo_b"),
            q_norm=w.dense(attn + "q_norm.weight"),
            kv_norm=w.dense(attn + "kv_norm.weight"),
            sink=w.dense(attn + "attn_sink"),
            frequencies=self._frequencies(ratio),
            compressor=None,
            indexer=None,
        )

    def moe(self, prefix: str, moe: MoeConfig) -> Moe:
        w, shared = self.weights, prefix + "shared_experts."
        owned = self.share.of(moe.num_experts, "experts")
        return Moe(
            moe,
            gate=self._dense(prefix + "gate.weight"),
            bias=w.dense(prefix + "gate.bias"),
            experts=Experts(
                owned.start,
                self._experts(prefix, ("w1", "w3"), owned),
                self._experts(prefix, ("w2",), owned),
                moe.swiglu_limit,
                self.is_rounding,
            ),
            shared_gate_up=self._linear(shared + "w1", shared + "w3"),
            shared_down=self._linear(shared + "w2"),
        )

    def _add_sources(self, attention: LatentAttention, prefix: str, index: int) -> None:
        w, c, latent, attn = self.weights, self.config, self.latent, prefix + "attn."
        if index in latent.kv_sources:
            ratio = latent.ratios[index]
            attention.compressor = Compressor(
                layer=index,
                ratio=ratio,
                wkv=self._dense(attn + "compressor.wkv.weight"),
                wgate=self._dense(attn + "compressor.wgate.weight") if ratio == 2 else None,
                norm=w.dense(attn + "compressor.norm.weight"),
                frequencies=attention.frequencies,
                key=KeyMaker(
                    weight=self._dense(attn + "indexer.wk.weight"),
                    norm=w.dense(attn + "indexer.k_norm.weight"),
                    frequencies=attention.frequencies,
                    eps=c.rms_norm_eps,
                ),
                eps=c.rms_norm_eps,
            )
        if index in latent.index_sources:
            attention.indexer = Indexer(
                config=latent.indexer,
                wq=self._linear(attn + "indexer.wq_b"),
                weights=self._dense(attn + "indexer.weights_proj.weight"),
                frequencies=attention.frequencies,
                is_rounding=self.is_rounding,
                marks=index == latent.cut,
                is_filtered=index > latent.cut,
            )

    def _streams(self, prefix: str, part: str) -> Sublayer:
        w, hyper = self.weights, self.latent.hyper
        matrix = HyperMatrix(
            fn=w.dense(f"{prefix}hc_{part}_fn"),
            base=w.dense(f"{prefix}hc_{part}_base"),
            scale=w.dense(f"{prefix}hc_{part}_scale"),
            iterations=hyper.iterations,
            eps=self.config.rms_norm_eps,
            floor=hyper.eps,
        )
        return Sublayer(matrix, norm=w.dense(f"{prefix}{part}_norm.weight"))

    def _linear(self, *names: str) -> ScaledLinear:
        return ScaledLinear(self.weights.scaled(*names), self.is_rounding)

    def _dense(self, name: str) -> ScaledLinear:
        """A matrix that is not quantised, nor are the rows that it meets."""
        return ScaledLinear(ops.pack_float32(self.weights.dense(name)), is_rounding=False)

    def _experts(self, prefix: str, parts: tuple[str, ...], owned: range) -> PackedMatrix:
        """`parts` of every owned expert as one matrix, expert by expert."""

        def stacked(kind: str) -> Tensor:
            experts = [f"{prefix}experts.{e}" for e in owned]
            names = [[f"{x}.{p}.{kind}" for p in parts] for x in experts]
            return self.weights.stacked(names).flatten(0, 1)

        return ops.pack_fp4(stacked("weight"), stacked("scale"))

    def _frequencies(self, ratio: int) -> Tensor:
        latent, yarn = self.latent, self.latent.yarn
        theta = latent.entry_theta if ratio else latent.window_theta
        factor = yarn.factor if ratio else 1.0
        return ops.yarn_frequencies(
            latent.rope_dim, theta, factor, yarn.beta_fast, yarn.beta_slow, yarn.original_len
        )

    def _hashes(self, folder: Path) -> dict[int, EngramHash]:
        engram = self.latent.engram
        if not engram.layers:
            return {}
        mapped = torch.tensor(token_map(folder, engram, self.config.vocab_size))
        hashes = {}
        for layer, sizes in zip(engram.layers, primes(engram), strict=True):
            prime = torch.tensor(sizes)
            offset = (prime.flatten().cumsum(0) - prime.flatten()).view_as(prime)
            factors = torch.tensor(multipliers(layer, engram))
            pad = int(mapped[engram.pad_id])
            hashes[layer] = EngramHash(mapped, pad, factors, prime, offset)
        return hashes

    def _engram(self, prefix: str, engram_hash: EngramHash) -> Engram:
        w, name = self.weights, prefix + "engram."
        return Engram(
            engram_hash,
            table=EngramTable(w.raw(name + "embed.weight"), w.raw(name + "embed.scale")),
            wkv=self._linear(name + "wkv"),
            weight=w.dense(name + "q_weight") * w.dense(name + "k_weight"),
            eps=self.config.rms_norm_eps,
        )
