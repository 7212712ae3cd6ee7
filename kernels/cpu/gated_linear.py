"""The first half of a gated MLP on the CPU: two calls, the product is what takes the time."""

from __future__ import annotations

from torch import Tensor

from .activation import gelu_tanh_mul, silu_mul
from .linear import linear


def gelu_tanh_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See `reference.gated_linear.gelu_tanh_linear`."""
    return gelu_tanh_mul(linear(x, weight))


def silu_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See `reference.gated_linear.silu_linear`."""
    return silu_mul(linear(x, weight))
