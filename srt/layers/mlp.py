"""The gated MLP of dense models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from treadle.kernels import ops

from .linear import Linear

# of gate and up, by activation: with the product before it, and alone
GATES = {
    "silu": (ops.silu_linear, ops.silu_mul),
    "gelu_tanh": (ops.gelu_tanh_linear, ops.gelu_tanh_mul),
}


@dataclass(slots=True, eq=False)
class GatedMlp:
    """`down(act(gate(x)) * up(x))`. Shapes: [T, C] -> [T, C]. `activation`: silu or gelu_tanh."""

    gate_up: Linear
    down: Linear
    activation: str

    def __call__(self, x: Tensor) -> Tensor:
        of_product, of_halves = GATES[self.activation]
        weight = self.gate_up.weight
        if isinstance(weight, Tensor) and weight.dtype == x.dtype and self.gate_up.bias is None:
            return self.down(of_product(x, weight))
        return self.down(of_halves(self.gate_up(x)))
