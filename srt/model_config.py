"""ModelConfig: what a checkpoint says about its structure, read from metadata alone; no torch.

One value for every family: per-layer kinds and sizes. Readers of the two metadata forms are
`hf_config.py` (`config.json`) and `gguf_config.py`; here are only the facts and what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .latent_config import LatentConfig

# Rows that each window layer replays more than the one above, unless a flag says otherwise (rule
# B38). With 32 a hit differs from a cold run by a KL divergence of 4e-4, measured.
GEMMA3_REPLAY_SLOPE = 32


class LayerKind(StrEnum):
    GLOBAL = "global"  # attends to every earlier position
    WINDOW = "window"  # attends to the last W positions, itself included


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding, rotate-half layout. `factor` and the llama3 fields scale frequencies:
    kind "default" (none), "linear" (all frequencies / factor), "llama3" (by wavelength band).
    """

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_len: int = 0


@dataclass(frozen=True, slots=True)
class LayerConfig:
    kind: LayerKind
    rope: Rope


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`window` counts the row itself: row p sees keys p-window+1 .. p. 0 when there is none."""

    architecture: str  # a key of `models/registry.py`, such as "Gemma3ForCausalLM"
    model_type: str  # "llama", "qwen2", "qwen3", "gemma3_text"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_len: int
    rms_norm_eps: float
    activation: str  # "silu" or "gelu_tanh"
    attention_scale: float  # multiplies q.k
    embed_scale: float  # multiplies embeddings; 1.0 except Gemma
    qkv_bias: bool
    o_bias: bool
    qk_norm: bool  # RMS norm per head on q and k before rope
    norm_plus_one: bool  # norm weights are stored minus one (Gemma in safetensors, not in GGUF)
    sandwich_norm: bool  # norms after attention and after the MLP too (Gemma)
    tie_embeddings: bool
    window: int
    layers: tuple[LayerConfig, ...]
    eos_ids: tuple[int, ...]
    is_quantized: bool  # the checkpoint's matrices are block-quantised (GGUF types below F16)
    latent: LatentConfig | None = None  # None: ordinary attention, keys and values per head
    replay_slope: int = 0  # of a bounded replay when no flag says it (B38); 0: uniform

    @property
    def window_layers(self) -> tuple[int, ...]:
        """Indexes of window layers, bottom first."""
        return tuple(i for i, x in enumerate(self.layers) if x.kind is LayerKind.WINDOW)

    @property
    def global_layers(self) -> tuple[int, ...]:
        return tuple(i for i, x in enumerate(self.layers) if x.kind is LayerKind.GLOBAL)
