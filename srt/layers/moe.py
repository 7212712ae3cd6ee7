"""Mixture of experts with one shared expert (deepseek-v41.md 2.8).

A rank owns experts by number (2.7); the gate and the shared expert are everywhere. The routed
output of a layer is the sum of what the ranks' experts give.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import Experts

from ..latent_config import MoeConfig
from .quant import ScaledLinear


@dataclass(slots=True, eq=False)
class Moe:
    """Shapes, for E experts and width D: gate [E, D], bias [E]. `experts` are those owned."""

    config: MoeConfig
    gate: ScaledLinear
    bias: Tensor
    experts: Experts
    shared_gate_up: ScaledLinear
    shared_down: ScaledLinear

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x [T, D]; returns [T, D]. For a rank that owns every expert."""
        both = self.shared_gate_up(x)
        half = both.shape[1] // 2
        inner = ops.clamped_swiglu(both[:, :half], both[:, half:], self.config.swiglu_limit)
        return self.routed(x).add_(self.shared_down(inner))

    def routed(self, x: Tensor) -> Tensor:
        """What the experts that are owned give. Shapes: x [T, D]; returns [T, D]."""
        c = self.config
        chosen, weights = ops.route(self.gate(x), self.bias, c.num_chosen, c.factor)
        return ops.moe_experts(x, chosen, weights, self.experts)
