"""Mixture of experts: routing and the experts' arithmetic. Specification.

Source: deepseek-v41.md 2.8. The routing weight is applied before the second matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .block_float import fp8_round
from .linear import linear
from .packed_linear import PackedMatrix, unpack_matrix


@dataclass(frozen=True, slots=True)
class Experts:
    """E experts from number `first` on, of width D and inner size I, fp4: gate_up `[E*2I, D]`, gate
    before up in each; down `[E*D, I]`. `is_rounding`: inputs of both matrices are rounded to fp8.
    """

    first: int
    gate_up: PackedMatrix
    down: PackedMatrix
    limit: float
    is_rounding: bool

    @property
    def count(self) -> int:
        return self.down.out_features // self.gate_up.in_features


def route(logits: Tensor, bias: Tensor, count: int, factor: float) -> tuple[Tensor, Tensor]:
    """The `count` experts of each row and their weights, which sum to `factor`.

    Scores are sqrt(softplus(logit)); `bias` decides which experts are taken and never scales. Ties
    go to the lower expert. Shapes: logits `[T, E]`, bias `[E]`; returns int64 `[T, count]` and
    `[T, count]`.
    """
    scores = torch.sqrt(softplus(logits))
    order = torch.sort(scores + bias, dim=1, descending=True, stable=True).indices
    chosen = order[:, :count]
    weights = scores.gather(1, chosen)
    return chosen, weights / (weights.sum(1, keepdim=True) + 1e-20) * factor


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """`silu(min(gate, limit)) * clip(up, -limit, limit)`, any shape."""
    gate = gate.clamp(max=limit)
    return gate * torch.sigmoid(gate) * up.clamp(-limit, limit)


def moe_experts(x: Tensor, chosen: Tensor, weights: Tensor, experts: Experts) -> Tensor:
    """Weighted sum of the chosen experts of each row, by ascending expert; those that are not among
    `experts` give nothing here.

    Shapes: x float32 `[T, D]`, chosen int64 `[T, count]`, weights `[T, count]`; returns `[T, D]`.
    """
    count, inner_size = experts.count, experts.down.in_features
    gate_up = unpack_matrix(experts.gate_up).view(count, 2 * inner_size, -1)
    down = unpack_matrix(experts.down).view(count, -1, inner_size)
    out = torch.zeros_like(x)
    rounded = fp8_round(x) if experts.is_rounding else x
    for expert in range(count):
        rows, place = torch.nonzero(chosen == expert + experts.first, as_tuple=True)
        both = linear(rounded[rows], gate_up[expert])
        inner = clamped_swiglu(both[:, :inner_size], both[:, inner_size:], experts.limit)
        inner = inner * weights[rows, place].unsqueeze(1)
        inner = fp8_round(inner) if experts.is_rounding else inner
        out.index_add_(0, rows, linear(inner, down[expert]))
    return out
