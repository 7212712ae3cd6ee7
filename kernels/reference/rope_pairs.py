"""Rotary embedding of adjacent pairs (2i, 2i+1), on the last channels of a row. Specification.

The other layout, halves, is in `rope.py`. Source: deepseek-v41.md 2.5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def yarn_frequencies(  # noqa: PLR0913 - the published parameters
    size: int, theta: float, factor: float, beta_fast: float, beta_slow: float, original_len: int
) -> Tensor:
    """Angular frequencies `[size/2]` in float32; `factor` 1 leaves them plain."""
    plain = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if factor == 1.0:
        return plain.float()

    def dim_of(turns: float) -> float:
        return size * math.log(original_len / (2 * math.pi * turns)) / (2 * math.log(theta))

    low = max(math.floor(dim_of(beta_fast)), 0)
    high = min(math.ceil(dim_of(beta_slow)), size - 1)
    ramp = (torch.arange(size // 2, dtype=torch.float64) - low) / max(high - low, 0.001)
    ramp = ramp.clamp(0, 1)
    return (plain / factor * ramp + plain * (1 - ramp)).float()


def rope_pairs(
    x: Tensor, positions: Tensor, frequencies: Tensor, *, inverse: bool = False
) -> Tensor:
    """`x` with its last `2 * len(frequencies)` channels rotated by `position * frequency`.

    Shapes: x `[T, ..., D]`, positions int64 `[T]`, frequencies `[R/2]`. `inverse` turns back.
    """
    size = 2 * frequencies.shape[0]
    angles = positions.to(torch.float32)[:, None] * frequencies
    if inverse:
        angles = -angles
    shape = (x.shape[0], *(1,) * (x.ndim - 2), size // 2)
    cos, sin = angles.cos().view(shape), angles.sin().view(shape)
    even, odd = x[..., -size::2], x[..., -size + 1 :: 2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((x[..., :-size], turned.to(x.dtype)), -1)
