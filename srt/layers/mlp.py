"""The gated MLP of dense models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops

from .linear import Linear


@dataclass(slots=True, eq=False)
class GatedMlp:
    """`down(act(gate(x)) * up(x))`. Shapes: [T, C] -> [T, C]. `activation`: silu or gelu_tanh."""

    gate_up: Linear
    down: Linear
    activation: str

    def __call__(self, x: Tensor) -> Tensor:
        gate_up = self.gate_up(x)
        if self.activation == "silu":
            return self.down(ops.silu_mul(gate_up))
        return self.down(ops.gelu_tanh_mul(gate_up))
