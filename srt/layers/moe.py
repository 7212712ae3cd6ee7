"""Mixture of experts with one shared expert (deepseek-v41.md 2.8).

A rank owns experts by number (2.7); the gate and the shared expert are everywhere. The routed
output of a layer is the sum of what the ranks' experts give.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treadle.kernels import ops

from ..latent_config import MoeConfig
from .quant import Fp4Experts, ScaledLinear


@dataclass(slots=True, eq=False)
class Moe:
    """Shapes, for E experts of which O are owned, width D, inner I: gate [E, D], bias [E]; gate_up
    packed [O, 2I, D], down packed [O, D, I]."""

    config: MoeConfig
    owned: range
    gate: Tensor
    bias: Tensor
    gate_up: Fp4Experts
    down: Fp4Experts
    shared_gate_up: ScaledLinear
    shared_down: ScaledLinear
    is_rounding: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Shapes: x [T, D]; returns [T, D]. For a rank that owns every expert."""
        return self.routed(x) + self.shared_down(self._inner(self.shared_gate_up(x)))

    def routed(self, x: Tensor) -> Tensor:
        """What the experts that are owned give. Shapes: x [T, D]; returns [T, D]."""
        logits = ops.linear(x, self.gate, None)
        chosen, weights = ops.route(logits, self.bias, self.config.num_chosen, self.config.factor)
        out = torch.zeros_like(x)
        rounded = ops.fp8_round(x) if self.is_rounding else x
        for expert in torch.unique(chosen).tolist():
            if expert not in self.owned:
                continue
            place = self.owned.index(expert)
            rows, column = torch.nonzero(chosen == expert, as_tuple=True)
            inner = self._inner(ops.linear(rounded[rows], self.gate_up.matrix(place), None))
            inner = inner * weights[rows, column].unsqueeze(1)
            if self.is_rounding:
                inner = ops.fp8_round(inner)
            out.index_add_(0, rows, ops.linear(inner, self.down.matrix(place), None))
        return out

    def _inner(self, gate_up: Tensor) -> Tensor:
        half = gate_up.shape[1] // 2
        return ops.clamped_swiglu(gate_up[:, :half], gate_up[:, half:], self.config.swiglu_limit)
