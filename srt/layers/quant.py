"""Matrices of a block-scaled checkpoint as they are applied (deepseek-v41.md 2.2).

A weight that is stored in FP8 or FP4 takes activations rounded to FP8 in groups of 32, so the
product is that of the small floats whatever it is computed in. `is_rounding` False leaves the
activations alone: the pure mathematics of the dequantised weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops


@dataclass(slots=True, eq=False)
class ScaledLinear:
    """Weight [N, K], dequantised."""

    weight: Tensor
    is_rounding: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x [T, K]; returns [T, N]."""
        return ops.linear(ops.fp8_round(x) if self.is_rounding else x, self.weight, None)


@dataclass(slots=True, eq=False)
class Fp4Experts:
    """One matrix of every expert, packed: data uint8 [E, N, K/2], scales uint8 [E, N, K/32].
    Unpacked for the rows that use it and dropped again."""

    data: Tensor
    scales: Tensor

    def matrix(self, expert: int) -> Tensor:
        """float32 [N, K]."""
        return ops.fp4_matrix(self.data[expert], self.scales[expert])
