"""Mixture of experts: routing and the experts' arithmetic. Specification.

Source: deepseek-v41.md 2.8. The routing weight is applied before the second matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus


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
