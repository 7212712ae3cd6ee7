"""Cosine and sine tables of a model, one for each distinct `Rope` of its layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from treadle.kernels import ops

from ..model_config import ModelConfig, Rope


def rope_tables(config: ModelConfig, num_positions: int, dtype: torch.dtype) -> dict[Rope, Tensor]:
    """Tables [num_positions, D]: cosines in the first half of a row, sines in the second."""
    kinds = {layer.rope for layer in config.layers}
    return {
        rope: ops.rope_table(scaled_frequencies(rope, config.head_dim), num_positions, dtype)
        for rope in kinds
    }


def scaled_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Frequencies [D/2] float64 after the checkpoint's `rope_scaling`.

    Source: "linear" is position interpolation (Chen et al. 2023); "llama3" is the band rule of the
    Llama 3.1 release: long wavelengths are divided by `factor`, short ones kept, a linear blend
    between.
    """
    freq = ops.rope_inv_freq(head_dim, rope.theta)
    if rope.kind == "linear":
        return freq / rope.factor
    if rope.kind == "llama3":
        wavelength = 2 * math.pi / freq
        low = rope.original_context_len / rope.low_freq_factor
        high = rope.original_context_len / rope.high_freq_factor
        blend = (rope.original_context_len / wavelength - rope.low_freq_factor) / (
            rope.high_freq_factor - rope.low_freq_factor
        )
        mixed = (1 - blend) * freq / rope.factor + blend * freq
        scaled = torch.where(wavelength > low, freq / rope.factor, mixed)
        return torch.where(wavelength < high, freq, scaled)
    return freq
