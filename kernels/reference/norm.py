"""RMS norms, as a specification. Sums are taken in float32, or in float64 for float64 input.

Gemma's checkpoints want `1 + weight`; the loader folds the one in, so a single form is enough here.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last axis.

    Shapes: x `[T, C]` or `[T, H, D]`, rows may be strided; weight `[C]` (or `[D]`). Writes `out`
    when given, which may be x itself.
    """
    result = _normalised(x, weight, eps)
    return result if out is None else out.copy_(result)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`residual += x`, then the norm of `residual`: the step between two sublayers of a pre-norm
    model.

    Shapes: x and residual `[T, C]`, weight `[C]`; returns `[T, C]`. Writes `residual`.
    """
    residual += x
    return _normalised(residual, weight, eps)


def norm_add_rms_norm(
    x: Tensor, residual: Tensor, inner: Tensor, outer: Tensor, eps: float
) -> Tensor:
    """`residual += norm(x) * inner`, then `norm(residual) * outer`: the same step where sublayers
    have post-norms.

    Shapes: x and residual `[T, C]`, inner and outer `[C]`; returns `[T, C]`. Writes `residual`.
    """
    residual += _normalised(x, inner, eps)
    return _normalised(residual, outer, eps)


def _normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean_square = wide.square().mean(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps) * weight).to(x.dtype)
