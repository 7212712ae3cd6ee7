"""Matrices of a block-scaled checkpoint as they are applied (deepseek-v41.md 2.2).

A weight that is stored in FP8 or FP4 takes activations rounded to FP8 in groups of 32, so the
product is that of the small floats whatever it is computed in. `is_rounding` False leaves the
activations alone: the pure mathematics of the dequantised weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import PackedMatrix


@dataclass(slots=True, eq=False)
class ScaledLinear:
    """Weight [N, K], packed."""

    weight: PackedMatrix
    is_rounding: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x [T, K]; returns [T, N]."""
        return ops.linear_packed(x, self.weight, is_rounding=self.is_rounding)
