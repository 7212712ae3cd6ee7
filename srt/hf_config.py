"""`config.json` of Hugging Face checkpoints -> ModelConfig, in the forms of transformers 4 and 5.

Families are rows of a table. A key whose value would change the arithmetic in a way that no model
file here implements is refused by name: never ignored, never guessed.
Source of defaults and meanings: the configuration classes of transformers 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .deepseek_v41_config import ARCHITECTURE as DEEPSEEK_V41
from .deepseek_v41_config import deepseek_v41_config
from .errors import CheckpointError
from .json_object import MAX_LAYERS, JsonObject
from .model_config import GEMMA3_REPLAY_SLOPE, LayerConfig, LayerKind, ModelConfig, Rope

ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
ROPE_KINDS = ("default", "linear", "llama3")
LAYER_TYPES = {"full_attention": LayerKind.GLOBAL, "sliding_attention": LayerKind.WINDOW}

# Keys that must be absent, null or one of the values.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "mlp_bias": (False,),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "partial_rotary_factor": (1.0,),
    "quantization_config": (),
    "use_bidirectional_attention": (False,),
}

# A `text_config` lists only what differs from Gemma3TextConfig's defaults, so they are needed.
GEMMA3_DEFAULTS: dict[str, object] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "query_pre_attn_scalar": 256,
    "rope_theta": 1e6,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
}


@dataclass(frozen=True, slots=True)
class Family:
    architecture: str
    model_type: str
    defaults: dict[str, object] = field(default_factory=dict)
    replay_slope: int = 0


LLAMA = Family("LlamaForCausalLM", "llama")
QWEN2 = Family("Qwen2ForCausalLM", "qwen2")
QWEN3 = Family("Qwen3ForCausalLM", "qwen3", {"head_dim": 128})
GEMMA3 = Family("Gemma3ForCausalLM", "gemma3_text", GEMMA3_DEFAULTS, GEMMA3_REPLAY_SLOPE)
DEEPSEEK = Family(DEEPSEEK_V41, "deepseek_v41")
FAMILIES = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,  # the same structure once the window is off
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "Gemma3ForCausalLM": GEMMA3,
    "Gemma3ForConditionalGeneration": GEMMA3,  # its language model only
    DEEPSEEK_V41: DEEPSEEK,
}


def model_config_from_hf(
    top: JsonObject, generation: JsonObject, override: dict[str, object]
) -> ModelConfig:
    """`top` is `config.json`, `generation` is `generation_config.json` (empty when absent)."""
    family = _family(top)
    config = _text_config(top, family, override)
    eos_ids = _eos_ids(generation) or _eos_ids(config)
    if family is DEEPSEEK:
        return deepseek_v41_config(config, eos_ids)
    _refuse_unsupported(config)
    num_heads, hidden_size = config.size("num_attention_heads"), config.size("hidden_size")
    head_dim = config.size("head_dim", max(hidden_size // num_heads, 1))
    is_gemma = family is GEMMA3
    has_bias = _has_bias(config, is_gemma=is_gemma)
    layers = _layers(config, is_gemma=is_gemma)
    return ModelConfig(
        architecture=family.architecture,
        model_type=family.model_type,
        vocab_size=config.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=config.size("num_key_value_heads", num_heads),
        head_dim=head_dim,
        context_len=config.size("max_position_embeddings"),
        rms_norm_eps=config.value("rms_norm_eps", float, 1e-6),
        activation=_activation(config, is_gemma=is_gemma),
        attention_scale=_attention_scale(config, head_dim, is_gemma=is_gemma),
        embed_scale=hidden_size**0.5 if is_gemma else 1.0,
        qkv_bias=family is QWEN2 or has_bias,
        o_bias=has_bias and family is not QWEN2,
        qk_norm=family in (QWEN3, GEMMA3),
        norm_plus_one=is_gemma,
        sandwich_norm=is_gemma,
        tie_embeddings=config.value("tie_word_embeddings", bool, False),
        window=_window(config, layers),
        layers=layers,
        eos_ids=eos_ids,
        is_quantized=False,
        replay_slope=family.replay_slope,
    )


def _window(config: JsonObject, layers: tuple[LayerConfig, ...]) -> int:
    return config.size("sliding_window") if any(x.kind is LayerKind.WINDOW for x in layers) else 0


def _family(top: JsonObject) -> Family:
    found = top.values.get("architectures")
    name = found[0] if isinstance(found, list) and found else None
    if not isinstance(name, str) or name not in FAMILIES:
        raise top.unsupported("architectures", ", ".join(FAMILIES))
    return FAMILIES[name]


def _text_config(top: JsonObject, family: Family, override: dict[str, object]) -> JsonObject:
    """The object that describes the language model, with defaults below and the override on top."""
    text = top.child("text_config")
    if text is None:
        return JsonObject(top.source, {**family.defaults, **top.values, **override})
    outer = {
        key: top.values[key]
        for key in ("tie_word_embeddings", "eos_token_id", "quantization_config")
        if top.values.get(key) is not None
    }
    return JsonObject(text.source, {**family.defaults, **text.values, **outer, **override})


def _refuse_unsupported(config: JsonObject) -> None:
    for key, allowed in NEUTRAL.items():
        if config.values.get(key) is not None and config.values[key] not in allowed:
            raise config.unsupported(key, ", ".join(repr(x) for x in allowed) or "null")


def _has_bias(config: JsonObject, *, is_gemma: bool) -> bool:
    found = config.value("attention_bias", bool, False)
    if is_gemma and found:
        raise config.unsupported("attention_bias", "false")
    return found


def _attention_scale(config: JsonObject, head_dim: int, *, is_gemma: bool) -> float:
    key = "query_pre_attn_scalar"
    scalar = config.value(key, float, float(head_dim)) if is_gemma else float(head_dim)
    if scalar <= 0:
        raise config.unsupported(key, "a positive number")
    return float(scalar**-0.5)


def _activation(config: JsonObject, *, is_gemma: bool) -> str:
    key = "hidden_activation" if is_gemma else "hidden_act"
    found = config.value(key, str)
    if found not in ACTIVATIONS:
        raise config.unsupported(key, ", ".join(ACTIVATIONS))
    return ACTIVATIONS[found]


def _layers(config: JsonObject, *, is_gemma: bool) -> tuple[LayerConfig, ...]:
    num_layers = config.size("num_hidden_layers", limit=MAX_LAYERS)
    kinds = _listed_kinds(config, num_layers)
    if is_gemma:
        ropes = _gemma_ropes(config)
        return tuple(LayerConfig(x, ropes[x]) for x in kinds or _pattern_kinds(config, num_layers))
    if kinds is not None and LayerKind.WINDOW in kinds:
        raise config.unsupported("layer_types", "full_attention in every layer")
    _refuse_window(config)
    return (LayerConfig(LayerKind.GLOBAL, _rope(config)),) * num_layers


def _listed_kinds(config: JsonObject, num_layers: int) -> list[LayerKind] | None:
    found = config.values.get("layer_types")
    if found is None:
        return None
    if not isinstance(found, list) or any(x not in LAYER_TYPES for x in found):
        raise config.unsupported("layer_types", "a list of " + " and ".join(LAYER_TYPES))
    if len(found) != num_layers:
        raise CheckpointError(
            f"{config.source}: layer_types: expected {num_layers} entries, found {len(found)}"
        )
    return [LAYER_TYPES[x] for x in found]


def _pattern_kinds(config: JsonObject, num_layers: int) -> list[LayerKind]:
    """Gemma 3 before `layer_types`: every sixth layer is global."""
    spelled = "sliding_window_pattern"
    key = spelled if config.values.get(spelled) is not None else "_" + spelled
    period = config.size(key, 6)
    return [LayerKind.WINDOW if (i + 1) % period else LayerKind.GLOBAL for i in range(num_layers)]


def _refuse_window(config: JsonObject) -> None:
    """Qwen's window is off unless `use_sliding_window`; Mistral's is on whenever it is set."""
    window = config.values.get("sliding_window")
    is_mistral = config.values.get("architectures") == ["MistralForCausalLM"]
    is_on = config.value("use_sliding_window", bool, is_mistral)
    if (
        is_on
        and window is not None
        and config.size("sliding_window") < config.size("max_position_embeddings")
    ):
        raise config.unsupported("sliding_window", "null, or at least the context length")


def _gemma_ropes(config: JsonObject) -> dict[LayerKind, Rope]:
    """Window layers rotate with a base of their own and are never scaled."""
    parameters = config.child("rope_parameters")
    by_type = {k: parameters.child(t) if parameters else None for t, k in LAYER_TYPES.items()}
    local = by_type[LayerKind.WINDOW]
    theta = config.value("rope_local_base_freq", float, 1e4)
    return {
        LayerKind.GLOBAL: _rope(config, by_type[LayerKind.GLOBAL]),
        LayerKind.WINDOW: _scaled(config, local, theta) if local else Rope(theta=theta),
    }


def _rope(config: JsonObject, parameters: JsonObject | None = None) -> Rope:
    """`rope_parameters` of transformers 5, else `rope_theta` with `rope_scaling` of 4."""
    theta = config.value("rope_theta", float, 1e4)
    found = parameters or config.child("rope_parameters") or config.child("rope_scaling")
    return _scaled(config, found, theta) if found else Rope(theta=theta)


def _scaled(config: JsonObject, rope: JsonObject, theta: float) -> Rope:
    key = "rope_type" if rope.values.get("rope_type") is not None else "type"
    kind = rope.value(key, str, "default")
    if kind not in ROPE_KINDS:
        raise rope.unsupported(key, ", ".join(ROPE_KINDS))
    _refuse_unsupported(rope)
    theta = rope.value("rope_theta", float, theta)
    if kind == "default":
        return Rope(theta=theta)
    factor = rope.value("factor", float)
    if factor < 1.0:
        raise rope.unsupported("factor", "1 or more")
    if kind == "linear":
        return Rope(theta=theta, kind=kind, factor=factor)
    return Rope(
        theta=theta,
        kind=kind,
        factor=factor,
        low_freq_factor=rope.value("low_freq_factor", float),
        high_freq_factor=rope.value("high_freq_factor", float),
        original_context_len=rope.size(
            "original_max_position_embeddings", config.size("max_position_embeddings")
        ),
    )


def _eos_ids(source: JsonObject) -> tuple[int, ...]:
    found = source.values.get("eos_token_id")
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not all(type(x) is int for x in ids):
        raise CheckpointError(f"{source.source}: eos_token_id: expected ids, found {found!r}")
    return tuple(dict.fromkeys(ids))
