"""`config.json` of DeepSeek-V4.1 -> ModelConfig with its `latent` part; no torch.

A value that would change the arithmetic in a way that no model file here has is refused by name.
Rules that the code relies on (deepseek-v41.md 3.1, 5.3) are checked once, here.
"""

from __future__ import annotations

from .errors import CheckpointError
from .json_object import MAX_LAYERS, JsonObject
from .latent_config import (
    BLOCK,
    DraftConfig,
    EngramConfig,
    HyperConfig,
    IndexerConfig,
    LatentConfig,
    MoeConfig,
    Yarn,
)
from .model_config import LayerConfig, LayerKind, ModelConfig, Rope

ARCHITECTURE = "DeepseekV41ForCausalLM"


# Keys that must have this value: another would mean arithmetic that no model file here has.
FIXED: dict[str, object] = {
    "hidden_act": "silu",
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "num_key_value_heads": 1,
    "n_shared_experts": 1,
}
FIXED_QUANTIZATION: dict[str, object] = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [BLOCK, BLOCK],
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4",
}


def deepseek_v41_config(text: JsonObject, eos_ids: tuple[int, ...]) -> ModelConfig:
    """`text` is `text_config` with the outer quantization_config and overrides merged in.

    Raises: ConfigError for a value that is not implemented, CheckpointError for a contradiction.
    """
    _check_fixed(text, FIXED)
    _check_quantization(text)
    num_layers = text.size("num_hidden_layers", limit=MAX_LAYERS)
    latent = _latent(text, num_layers)
    _check_roles(text, latent, num_layers)
    return ModelConfig(
        architecture=ARCHITECTURE,
        model_type="deepseek_v41",
        vocab_size=text.size("vocab_size"),
        hidden_size=text.size("hidden_size"),
        intermediate_size=latent.moe.intermediate_size,
        num_heads=text.size("num_attention_heads"),
        num_kv_heads=1,
        head_dim=text.size("head_dim"),
        context_len=text.size("max_position_embeddings"),
        rms_norm_eps=text.value("rms_norm_eps", float),
        activation="silu",
        attention_scale=float(text.size("head_dim")) ** -0.5,
        embed_scale=1.0,
        qkv_bias=False,
        o_bias=False,
        qk_norm=False,
        norm_plus_one=False,
        sandwich_norm=False,
        tie_embeddings=False,
        window=text.size("sliding_window"),
        layers=(LayerConfig(LayerKind.WINDOW, Rope(latent.window_theta)),) * num_layers,
        eos_ids=eos_ids,
        is_quantized=True,
        replay_slope=0,  # it was trained with one window of replay
        latent=latent,
    )


def _check_quantization(text: JsonObject) -> None:
    quantization = text.child("quantization_config")
    if quantization is not None:
        _check_fixed(quantization, FIXED_QUANTIZATION)


def _latent(text: JsonObject, num_layers: int) -> LatentConfig:
    draft = _draft(text)
    ratios = _ints(text, "compress_ratios")
    if len(ratios) != num_layers + draft.num_blocks:
        raise CheckpointError(
            f"{text.source}: compress_ratios: expected {num_layers + draft.num_blocks} entries,"
            f" found {len(ratios)}"
        )
    return LatentConfig(
        rope_dim=text.size("qk_rope_head_dim"),
        q_rank=text.size("q_lora_rank"),
        o_rank=text.size("o_lora_rank"),
        o_groups=text.size("o_groups"),
        ratios=ratios[:num_layers],
        kv_sources=_ints(text, "kv_source_layer_ids"),
        index_sources=_ints(text, "index_source_layer_ids"),
        window_theta=text.value("rope_theta", float),
        entry_theta=text.value("compress_rope_theta", float),
        yarn=_yarn(text),
        moe=MoeConfig(
            num_experts=text.size("n_routed_experts"),
            num_chosen=text.size("num_experts_per_tok"),
            intermediate_size=text.size("moe_intermediate_size"),
            factor=text.value("routed_scaling_factor", float),
            swiglu_limit=text.value("swiglu_limit", float),
        ),
        hyper=HyperConfig(
            num_streams=text.size("hc_mult", limit=64),
            iterations=text.size("hc_sinkhorn_iters", limit=1000),
            eps=text.value("hc_eps", float),
        ),
        indexer=_indexer(text),
        engram=_engram(text),
        draft=draft,
    )


def _indexer(text: JsonObject) -> IndexerConfig:
    return IndexerConfig(
        num_heads=text.size("index_n_heads"),
        head_dim=text.size("index_head_dim"),
        num_chosen=text.size("index_topk"),
        candidate_blocks=text.size("candidate_topk_blocks"),
        block_size=text.size("candidate_block_size"),
    )


def _yarn(text: JsonObject) -> Yarn:
    scaling = text.child("rope_scaling")
    if scaling is None:
        raise CheckpointError(f"{text.source}: rope_scaling: expected an object, found nothing")
    key = "rope_type" if "rope_type" in scaling.values else "type"
    if scaling.values.get(key) != "yarn":
        raise scaling.unsupported(key, "yarn")
    return Yarn(
        factor=scaling.value("factor", float),
        beta_fast=scaling.value("beta_fast", float, 32.0),
        beta_slow=scaling.value("beta_slow", float, 1.0),
        original_len=scaling.size("original_max_position_embeddings"),
    )


def _engram(text: JsonObject) -> EngramConfig:
    layers, rows = _ints(text, "engram_layer_ids"), _ints(text, "engram_num_embeddings")
    if len(layers) != len(rows):
        raise CheckpointError(
            f"{text.source}: engram_num_embeddings: expected {len(layers)} entries, found"
            f" {len(rows)}"
        )
    return EngramConfig(
        layers=layers,
        rows=rows,
        max_ngram=text.size("engram_max_ngram_size", limit=16),
        num_heads=text.size("engram_n_heads", limit=64),
        head_dim=text.size("engram_head_dim"),
        prime_start=text.size("engram_vocab_size"),
        num_compressed=text.size("engram_compressed_vocab_size"),
        pad_id=text.value("engram_pad_token_id", int),
    )


def _draft(text: JsonObject) -> DraftConfig:
    blocks = text.value("num_nextn_predict_layers", int, 0)
    if not blocks:
        return DraftConfig(0, 0, 0, (), 0, 0, 0)
    return DraftConfig(
        num_blocks=blocks,
        block_size=text.size("dspark_block_size", limit=64),
        noise_id=text.value("dspark_noise_token_id", int),
        taps=_ints(text, "dspark_target_layer_ids"),
        markov_rank=text.size("dspark_markov_rank"),
        num_experts=text.size("dspark_n_routed_experts"),
        num_chosen=text.size("dspark_num_experts_per_tok"),
    )


def _check_fixed(config: JsonObject, fixed: dict[str, object]) -> None:
    for key, value in fixed.items():
        if config.values.get(key, value) != value:
            raise config.unsupported(key, repr(value))


def _check_roles(text: JsonObject, latent: LatentConfig, num_layers: int) -> None:
    """Raises: CheckpointError for a structure that contradicts the rules of section 3.1."""
    sources = latent.kv_sources
    if not sources or list(sources) != sorted(set(sources)) or sources[-1] >= num_layers:
        raise _contradiction(text, "kv_source_layer_ids", f"growing layers below {num_layers}")
    if not set(sources) <= set(latent.index_sources):
        raise _contradiction(text, "index_source_layer_ids", "every kv source among them")
    _check_ratios(text, latent)
    if text.value("candidate_source_layer_id", int) != latent.cut:
        key = "candidate_source_layer_id"
        raise _contradiction(text, key, f"the last kv source, {latent.cut}")
    if any(x >= latent.cut for x in latent.engram.layers):
        raise _contradiction(text, "engram_layer_ids", f"layers below the cut at {latent.cut}")
    if any(not latent.cut <= x < num_layers for x in latent.draft.taps):
        key = "dspark_target_layer_ids"
        raise _contradiction(text, key, f"decoder layers, {latent.cut} to {num_layers - 1}")


def _check_ratios(text: JsonObject, latent: LatentConfig) -> None:
    first, ratios = latent.kv_sources[0], latent.ratios
    for layer, ratio in enumerate(ratios):
        if ratio not in (0, 1, 2) or (ratio > 0) != (layer >= first):
            why = f"0 below layer {first}, then 1 or 2, in layer {layer}"
            raise _contradiction(text, "compress_ratios", why)
        if ratio and ratio != ratios[latent.kv_source(layer)]:
            why = f"in layer {layer} the ratio of layer {latent.kv_source(layer)}"
            raise _contradiction(text, "compress_ratios", why)
    if ratios[latent.cut] != 1:
        raise _contradiction(text, "compress_ratios", f"1 from layer {latent.cut} on")


def _contradiction(text: JsonObject, key: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"{text.source}: {key}: expected {expected}, found {text.values.get(key)!r}"
    )


def _ints(config: JsonObject, key: str) -> tuple[int, ...]:
    found = config.values.get(key)
    if not isinstance(found, list) or not all(type(x) is int and x >= 0 for x in found):
        raise CheckpointError(
            f"{config.source}: {key}: expected a list of integers, found {found!r}"
        )
    return tuple(found)
