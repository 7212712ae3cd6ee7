"""Rotary positions (rotate-half), alone or with the per-head norm of queries and keys before it.

Source: RoFormer (Su et al. 2021), eq. 34, in the half-split layout of the Hugging Face checkpoints:
element i is paired with element i + D/2. GGUF files of the `llama` architecture store q and k
permuted for the interleaved layout; their loader permutes back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .norm import rms_norm


@dataclass(frozen=True, slots=True)
class QkNorm:
    """Weights `[D]` of the per-head norms of queries and keys, and their epsilon."""

    q_weight: Tensor
    k_weight: Tensor
    eps: float


def rope_inv_freq(head_size: int, base: float) -> Tensor:
    """Frequencies `[D/2]`, float64: `base^(-2i/D)`."""
    return base ** -(torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)


def rope_table(inv_freq: Tensor, num_positions: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Table `[num_positions, D]`: cosines in the first half of a row, sines in the second.

    Angles in float64.
    """
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), inv_freq.double())
    return torch.cat((angles.cos(), angles.sin()), dim=1).to(dtype)


def rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """Rotate queries and keys to their positions.

    Shapes: q `[T, H, D]`, k `[T, K, D]`, rows may be strided; positions int64 `[T]`; cos_sin
    `[num_positions, D]` from `rope_table`. Writes q and k. Raises `ValueError` or `IndexError` for
    a position outside the table.
    """
    _rotate(q, positions, cos_sin)
    _rotate(k, positions, cos_sin)


def norm_rope(x: Tensor, weight: Tensor, positions: Tensor, cos_sin: Tensor, eps: float) -> None:
    """RMS norm over each head, then rotation. For layers that compute K for more rows than Q.

    Shapes: x `[T, H, D]`, weight `[D]`, positions int64 `[T]`. Writes x.
    """
    x.copy_(rms_norm(x, weight, eps))
    _rotate(x, positions, cos_sin)


def qk_norm_rope(q: Tensor, k: Tensor, norm: QkNorm, positions: Tensor, cos_sin: Tensor) -> None:
    """`norm_rope` of queries and keys of the same rows, in one call. Writes q and k."""
    norm_rope(q, norm.q_weight, positions, cos_sin, norm.eps)
    norm_rope(k, norm.k_weight, positions, cos_sin, norm.eps)


def _rotate(x: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    half = x.shape[-1] // 2
    rows = cos_sin[positions].unsqueeze(1)
    cos, sin = rows[..., :half], rows[..., half:]
    first, second = x[..., :half], x[..., half:]
    x.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
