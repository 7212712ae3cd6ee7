"""Names, dtypes and shapes of the tensors of a DeepSeek-V4.1 checkpoint (deepseek-v41.md 6).

One table, from the configuration alone: the loader checks files against it, and the released
model's list is counted from it. A block-scaled weight has its scale beside it, `.scale` for
`.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..latent_config import BLOCK, LatentConfig, MoeConfig
from ..model_config import ModelConfig

Shape = tuple[int, ...]

F32, BF16, FP8, FP4, E8M0 = "F32", "BF16", "F8_E4M3", "I8", "F8_E8M0"
VISION = ("vision.", "aligner.", "image_start", "image_end", "image_newline")
FOR_IMAGES = ".gate.bias_vl"  # routes rows of an image: in every file, of no use to text


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """`dtypes`: what a file may hold it in."""

    name: str
    dtypes: tuple[str, ...]
    shape: Shape


def tensor_specs(config: ModelConfig) -> dict[str, TensorSpec]:
    """Every tensor of the language model and the draft head, in the order of loading."""
    return {spec.name: spec for spec in _specs(config)}


def _specs(config: ModelConfig) -> Iterator[TensorSpec]:
    latent, hidden = config.latent, config.hidden_size
    assert latent is not None
    yield _dense("embed.weight", config.vocab_size, hidden)
    for layer in range(len(config.layers)):
        yield from _layer(f"layers.{layer}.", config, latent, latent.moe)
        yield from _sources(layer, config, latent)
        if layer in latent.engram.layers:
            yield from _engram(layer, config, latent)
    yield _dense("norm.weight", hidden)
    yield _dense("head.weight", config.vocab_size, hidden)
    yield from _draft(config, latent)


def _layer(
    prefix: str, config: ModelConfig, latent: LatentConfig, moe: MoeConfig
) -> Iterator[TensorSpec]:
    hidden, heads = config.hidden_size, config.num_heads * config.head_dim
    streams = latent.hyper.num_streams
    mix = 2 * streams + streams * streams
    yield _dense(f"{prefix}attn_norm.weight", hidden)
    yield _dense(f"{prefix}ffn_norm.weight", hidden)
    for part in ("hc_attn", "hc_ffn"):
        yield TensorSpec(f"{prefix}{part}_fn", (F32,), (mix, streams * hidden))
        yield TensorSpec(f"{prefix}{part}_base", (F32,), (mix,))
        yield TensorSpec(f"{prefix}{part}_scale", (F32,), (3,))
    attn = prefix + "attn."
    yield from _scaled(attn + "wq_a", latent.q_rank, hidden)
    yield _dense(attn + "q_norm.weight", latent.q_rank)
    yield from _scaled(attn + "wq_b", heads, latent.q_rank)
    yield from _scaled(attn + "wkv", config.head_dim, hidden)
    yield _dense(attn + "kv_norm.weight", config.head_dim)
    yield TensorSpec(attn + "attn_sink", (F32,), (config.num_heads,))
    yield from _scaled(attn + "wo_a", latent.o_groups * latent.o_rank, heads // latent.o_groups)
    yield from _scaled(attn + "wo_b", hidden, latent.o_groups * latent.o_rank)
    yield from _moe(prefix + "ffn.", hidden, moe)


def _moe(prefix: str, hidden: int, moe: MoeConfig) -> Iterator[TensorSpec]:
    inner = moe.intermediate_size
    yield _dense(prefix + "gate.weight", moe.num_experts, hidden)
    yield TensorSpec(prefix + "gate.bias", (F32,), (moe.num_experts,))
    yield TensorSpec(prefix.removesuffix(".") + FOR_IMAGES, (F32,), (moe.num_experts,))
    shapes = {"w1": (inner, hidden), "w3": (inner, hidden), "w2": (hidden, inner)}
    for part, (rows, columns) in shapes.items():
        yield from _scaled(f"{prefix}shared_experts.{part}", rows, columns)
    for expert in range(moe.num_experts):
        for part, (rows, columns) in shapes.items():
            name = f"{prefix}experts.{expert}.{part}"
            yield TensorSpec(name + ".weight", (FP4, "U8"), (rows, columns // 2))
            yield TensorSpec(name + ".scale", (E8M0, "U8"), (rows, columns // BLOCK))


def _sources(layer: int, config: ModelConfig, latent: LatentConfig) -> Iterator[TensorSpec]:
    """Compressor and indexer of the layers that have one."""
    hidden, size, index = config.hidden_size, config.head_dim, latent.indexer
    attn = f"layers.{layer}.attn."
    if layer in latent.kv_sources:
        yield _dense(attn + "compressor.wkv.weight", size, hidden)
        if latent.ratios[layer] == 2:
            yield _dense(attn + "compressor.wgate.weight", size, hidden)
        yield _dense(attn + "compressor.norm.weight", size)
        yield _dense(attn + "indexer.wk.weight", index.head_dim, size)
        yield _dense(attn + "indexer.k_norm.weight", index.head_dim)
    if layer in latent.index_sources:
        yield from _scaled(attn + "indexer.wq_b", index.num_heads * index.head_dim, latent.q_rank)
        yield _dense(attn + "indexer.weights_proj.weight", index.num_heads, hidden)


def _engram(layer: int, config: ModelConfig, latent: LatentConfig) -> Iterator[TensorSpec]:
    engram, streams, hidden = latent.engram, latent.hyper.num_streams, config.hidden_size
    rows, prefix = engram.rows[engram.layers.index(layer)], f"layers.{layer}.engram."
    yield TensorSpec(prefix + "embed.weight", (FP8,), (rows, engram.head_dim))
    yield TensorSpec(prefix + "embed.scale", (E8M0, "U8"), (rows, engram.head_dim // BLOCK))
    columns = engram.num_columns * engram.head_dim
    yield from _scaled(prefix + "wkv", (streams + 1) * hidden, columns)
    for part in ("q_weight", "k_weight"):
        yield TensorSpec(prefix + part, (BF16, F32), (streams, hidden))


def _draft(config: ModelConfig, latent: LatentConfig) -> Iterator[TensorSpec]:
    draft, hidden = latent.draft, config.hidden_size
    for block in range(draft.num_blocks):
        yield from _layer(f"mtp.{block}.", config, latent, draft_moe(latent))
    if draft.num_blocks:
        last = f"mtp.{draft.num_blocks - 1}."
        yield from _scaled("mtp.0.main_proj", hidden, len(draft.taps) * hidden)
        yield _dense("mtp.0.main_norm.weight", hidden)
        yield _dense(last + "norm.weight", hidden)
        yield _dense(last + "markov_head.embed.weight", config.vocab_size, draft.markov_rank)
        yield _dense(last + "markov_head.head.weight", config.vocab_size, draft.markov_rank)
        yield _dense(last + "confidence_head.proj.weight", 1, hidden + draft.markov_rank)


def draft_moe(latent: LatentConfig) -> MoeConfig:
    """The experts of a draft block."""
    moe, draft = latent.moe, latent.draft
    return MoeConfig(
        draft.num_experts, draft.num_chosen, moe.intermediate_size, moe.factor, moe.swiglu_limit
    )


def _dense(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, (BF16,), shape)


def _scaled(name: str, rows: int, columns: int) -> Iterator[TensorSpec]:
    yield TensorSpec(name + ".weight", (FP8,), (rows, columns))
    tiles = (-(-rows // BLOCK), -(-columns // BLOCK))
    yield TensorSpec(name + ".scale", (E8M0, "U8"), tiles)
