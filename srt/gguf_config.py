"""Metadata of GGUF files -> ModelConfig: llama, qwen2, qwen3 and gemma3.

What the format leaves out (Gemma's pattern, local rope base and attention scale; the llama3 rope
parameters, present only as per-frequency divisors) is filled in as llama.cpp does, which defines
what such files mean. Anything that would change the arithmetic and is not implemented is refused.
"""

from __future__ import annotations

import math
import struct

from .errors import CheckpointError, ConfigError
from .gguf import GgmlType, GgufFile
from .json_object import MAX_LAYERS
from .model_config import GEMMA3_REPLAY_SLOPE, LayerConfig, LayerKind, ModelConfig, Rope

ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
}
GEMMA_PERIOD = 6  # every sixth layer is global
GEMMA_LOCAL_THETA = 1e4
GEMMA_27B_LAYERS = 62  # the one size whose query scale is hidden / heads, not the head size

# Pieces that end a turn or a text; a file names one id as EOS, and chat models stop at others too.
END_PIECES = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>")
    + ("<|eot_id|>", "<|eom_id|>", "<|end|>")
)
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
SAMPLING_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_p": "top_p",
    "general.sampling.top_k": "top_k",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
# Keys below the architecture's name that must be absent or of this value.
NEUTRAL: dict[str, object] = {
    "expert_count": 0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
    "attention.causal": True,
}


def model_config_from_gguf(file: GgufFile) -> ModelConfig:
    """Raises: ConfigError for what is not supported, CheckpointError for what is damaged."""
    keys = _Keys(file)
    is_gemma = keys.architecture == "gemma3"
    hidden_size = keys.size("embedding_length")
    num_heads = keys.size("attention.head_count")
    head_dim = keys.size("attention.key_length", hidden_size // num_heads or None)
    if (width := keys.size("attention.value_length", head_dim)) != head_dim:
        raise keys.unsupported("attention.value_length", width, f"the key length, {head_dim}")
    if (width := keys.size("rope.dimension_count", head_dim)) != head_dim:
        raise keys.unsupported("rope.dimension_count", width, f"the head size, {head_dim}")
    layers = _layers(keys, head_dim)
    has_window = any(x.kind is LayerKind.WINDOW for x in layers)
    architecture, model_type = ARCHITECTURES[keys.architecture]
    vocab_size = _vocab_size(file)
    return ModelConfig(
        architecture=architecture,
        model_type=model_type,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=keys.size("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.size("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        context_len=keys.size("context_length"),
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        activation="gelu_tanh" if is_gemma else "silu",
        attention_scale=_attention_scale(keys, head_dim, hidden_size // num_heads),
        embed_scale=hidden_size**0.5 if is_gemma else 1.0,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        o_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=keys.architecture in ("qwen3", "gemma3"),
        norm_plus_one=False,
        sandwich_norm=is_gemma,
        tie_embeddings="output.weight" not in file.tensors,
        window=keys.size("attention.sliding_window") if has_window else 0,
        layers=layers,
        eos_ids=end_ids(file),
        is_quantized=any(x.ggml_type.is_block_quantised for x in file.tensors.values()),
        replay_slope=GEMMA3_REPLAY_SLOPE if is_gemma else 0,
    )


class _Keys:
    """The keys below `general.architecture`'s name."""

    __slots__ = ("architecture", "file")

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.architecture = file.value("general.architecture", str)
        if self.architecture not in ARCHITECTURES:
            raise ConfigError(
                f"{file.path}: general.architecture = {self.architecture!r} is not supported;"
                f" supported: {', '.join(ARCHITECTURES)}"
            )
        if (kind := file.value("general.type", str, "model")) != "model":
            raise ConfigError(
                f"{file.path}: general.type = {kind!r} is not supported; supported: 'model'"
            )
        for key, neutral in NEUTRAL.items():
            if self.found(key) not in (None, neutral):
                raise self.unsupported(key, self.found(key), repr(neutral))

    def found(self, key: str) -> object:
        return self.file.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        return self.file.value(f"{self.architecture}.{key}", float, default)

    def size(self, key: str, default: int | None = None, limit: int = 1 << 31) -> int:
        name = f"{self.architecture}.{key}"
        found = self.file.value(name, int, default)
        if not 1 <= found <= limit:
            raise CheckpointError(
                f"{self.file.path}: key {name}: expected 1 to {limit}, found {found}"
            )
        return found

    def unsupported(self, key: str, found: object, supported: str) -> ConfigError:
        return ConfigError(
            f"{self.file.path}: {self.architecture}.{key} = {found!r} is not supported;"
            f" supported: {supported}"
        )


def _vocab_size(file: GgufFile) -> int:
    embed = file.tensors.get("token_embd.weight")
    if embed is None or len(embed.shape) != 2:
        found = "nothing" if embed is None else f"shape {embed.shape}"
        raise CheckpointError(f"{file.path}: token_embd.weight: expected a matrix, found {found}")
    return embed.shape[0]


def _attention_scale(keys: _Keys, head_dim: int, hidden_per_head: int) -> float:
    is_27b = keys.architecture == "gemma3" and keys.size("block_count") == GEMMA_27B_LAYERS
    scale = keys.number("attention.scale", 0.0)
    return scale or (hidden_per_head if is_27b else head_dim) ** -0.5


def _layers(keys: _Keys, head_dim: int) -> tuple[LayerConfig, ...]:
    num_layers = keys.size("block_count", limit=MAX_LAYERS)
    rope = _rope(keys, head_dim)
    if keys.architecture != "gemma3":
        window = keys.found("attention.sliding_window")
        if window is not None and 0 < keys.size("attention.sliding_window") < keys.size(
            "context_length"
        ):
            raise keys.unsupported("attention.sliding_window", window, "none")
        return (LayerConfig(LayerKind.GLOBAL, rope),) * num_layers
    local = Rope(theta=keys.number("rope.freq_base_swa", GEMMA_LOCAL_THETA))
    return tuple(
        LayerConfig(LayerKind.WINDOW, local) if is_window else LayerConfig(LayerKind.GLOBAL, rope)
        for is_window in _window_pattern(keys, num_layers)
    )


def _window_pattern(keys: _Keys, num_layers: int) -> list[bool]:
    """The key is a period or one flag a layer; most Gemma 3 files leave it out."""
    found = keys.found("attention.sliding_window_pattern")
    if isinstance(found, list):
        if len(found) != num_layers or any(type(x) is not bool for x in found):
            raise keys.unsupported(
                "attention.sliding_window_pattern", found, f"{num_layers} booleans"
            )
        return [bool(x) for x in found]
    period = keys.size("attention.sliding_window_pattern", GEMMA_PERIOD)
    return [(i + 1) % period != 0 for i in range(num_layers)]


def _rope(keys: _Keys, head_dim: int) -> Rope:
    theta = keys.number("rope.freq_base", 1e4)
    kind = keys.file.value(f"{keys.architecture}.rope.scaling.type", str, "none")
    divisors = _rope_divisors(keys.file, head_dim)
    if divisors is not None:
        return _llama3_rope(keys, theta, divisors)
    if kind == "none":
        return Rope(theta=theta)
    if kind != "linear":
        raise keys.unsupported("rope.scaling.type", kind, "none, linear")
    return Rope(theta=theta, kind="linear", factor=keys.number("rope.scaling.factor"))


def _rope_divisors(file: GgufFile, head_dim: int) -> tuple[float, ...] | None:
    tensor = file.tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    if tensor.ggml_type is not GgmlType.F32 or tensor.shape != (head_dim // 2,):
        raise CheckpointError(
            f"{file.path}: rope_freqs.weight: expected F32 of shape ({head_dim // 2},),"
            f" found {tensor.ggml_type.name} of shape {tensor.shape}"
        )
    return struct.unpack_from(f"<{head_dim // 2}f", file.buffer, tensor.offset)


def _llama3_rope(keys: _Keys, theta: float, divisors: tuple[float, ...]) -> Rope:
    """Llama 3's parameters from the divisors that the converter made of them.

    The published models share three of the four; the fourth, the factor, is the largest divisor.
    The divisors are computed again and compared, so that another scheme is refused.
    """
    rope = Rope(
        theta=theta,
        kind="llama3",
        factor=max(divisors),
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_context_len=8192,
    )
    expected = [_llama3_divisor(rope, i / len(divisors)) for i in range(len(divisors))]
    if not all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(expected, divisors, strict=True)):
        raise ConfigError(
            f"{keys.file.path}: rope_freqs.weight is not the llama3 scaling of context"
            f" {rope.original_context_len}; supported: that scaling only"
        )
    return rope


def _llama3_divisor(rope: Rope, exponent: float) -> float:
    """Source: ROPE_INIT_FUNCTIONS["llama3"] of transformers; frequency / divisor is used."""
    wavelength = 2 * math.pi * math.pow(rope.theta, exponent)
    turns = rope.original_context_len / wavelength  # in the original context
    if turns > rope.high_freq_factor:
        return 1.0
    if turns < rope.low_freq_factor:
        return rope.factor
    smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    return 1.0 / ((1.0 - smooth) / rope.factor + smooth)


def end_ids(file: GgufFile) -> tuple[int, ...]:
    """Ids that end an answer: those that the file names, and pieces known to do so."""
    keys = (f"tokenizer.ggml.{x}" for x in END_KEYS)
    ids = [file.value(x, int) for x in keys if x in file.metadata]
    if "tokenizer.ggml.tokens" in file.metadata:
        pieces = file.values("tokenizer.ggml.tokens", str)
        ids += [i for i, piece in enumerate(pieces) if piece in END_PIECES]
    return tuple(dict.fromkeys(ids))
