"""The first half of a gated MLP, one product of gate and up and the activation, as a specification.

The product is rounded to the dtype of x before the activation, as if it were stored.
"""

from __future__ import annotations

from torch import Tensor

from .activation import gelu_tanh_mul, silu_mul
from .linear import linear


def gelu_tanh_linear(x: Tensor, weight: Tensor) -> Tensor:
    """`gelu_tanh_mul(linear(x, weight))`.

    Shapes: x `[T, K]`, weight `[2F, K]`, rows of gate first; returns `[T, F]`.
    """
    return gelu_tanh_mul(linear(x, weight))


def silu_linear(x: Tensor, weight: Tensor) -> Tensor:
    """`silu_mul(linear(x, weight))`; shapes as `gelu_tanh_linear`."""
    return silu_mul(linear(x, weight))
