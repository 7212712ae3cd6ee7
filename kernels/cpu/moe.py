"""Mixtures of experts in C++ for float32; anything else runs `reference/moe.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import moe as reference
from ..reference.moe import Experts
from ..reference.packed_linear import BLOCK, MatrixKind
from .lib import ADDRESS, FLOAT, INT, function

_route = function("treadle_route", (ADDRESS, ADDRESS, INT, INT, INT, FLOAT, ADDRESS, ADDRESS))
_clamped_swiglu = function(
    "treadle_clamped_swiglu", (ADDRESS, ADDRESS, INT, INT, INT, FLOAT, ADDRESS, INT)
)
_moe_experts = function(
    "treadle_moe_experts",
    (ADDRESS, INT, INT, ADDRESS, ADDRESS, INT, INT, INT, INT)
    + (ADDRESS, ADDRESS, ADDRESS, ADDRESS, FLOAT, INT, ADDRESS, INT),
)


def route(logits: Tensor, bias: Tensor, count: int, factor: float) -> tuple[Tensor, Tensor]:
    """See `reference.moe.route`."""
    rows, experts = logits.shape
    if logits.dtype is not torch.float32 or bias.dtype is not torch.float32 or count > experts:
        return reference.route(logits, bias, count, factor)
    logits, bias = logits.contiguous(), bias.contiguous()
    if bias.shape != (experts,):
        raise ValueError(f"route of {experts} experts with a bias {tuple(bias.shape)}")
    chosen = torch.empty(rows, count, dtype=torch.int64)
    weights = torch.empty(rows, count)
    _route(
        logits.data_ptr(),
        bias.data_ptr(),
        rows,
        experts,
        count,
        factor,
        chosen.data_ptr(),
        weights.data_ptr(),
    )
    return chosen, weights


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """See `reference.moe.clamped_swiglu`; two halves of one matrix are read where they lie."""
    if not _is_rows(gate) or not _is_rows(up) or gate.shape != up.shape:
        return reference.clamped_swiglu(gate, up, limit)
    if gate.stride(0) != up.stride(0):
        gate, up = gate.contiguous(), up.contiguous()
    rows, size = gate.shape
    out = torch.empty(rows, size)
    _clamped_swiglu(
        gate.data_ptr(),
        up.data_ptr(),
        gate.stride(0),
        rows,
        size,
        limit,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def moe_experts(x: Tensor, chosen: Tensor, weights: Tensor, experts: Experts) -> Tensor:
    """See `reference.moe.moe_experts`. Raises `ValueError` when sizes disagree."""
    gate_up, down = experts.gate_up, experts.down
    if x.dtype is not torch.float32 or {gate_up.kind, down.kind} != {MatrixKind.FP4}:
        return reference.moe_experts(x, chosen, weights, experts)
    _check_sizes(x, chosen, weights, experts)
    assert gate_up.scales is not None and down.scales is not None
    x, chosen, weights = x.contiguous(), chosen.contiguous(), weights.contiguous()
    rows, width = x.shape
    out = torch.empty(rows, width)
    _moe_experts(
        x.data_ptr(),
        rows,
        width,
        chosen.data_ptr(),
        weights.data_ptr(),
        chosen.shape[1],
        experts.first,
        experts.count,
        down.in_features,
        gate_up.data.data_ptr(),
        gate_up.scales.data_ptr(),
        down.data.data_ptr(),
        down.scales.data_ptr(),
        experts.limit,
        experts.is_rounding,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def _check_sizes(x: Tensor, chosen: Tensor, weights: Tensor, experts: Experts) -> None:
    """Raises `ValueError` as `moe_experts` does."""
    width, inner = x.shape[1], experts.down.in_features
    if (
        experts.gate_up.in_features != width
        or experts.gate_up.out_features != experts.count * 2 * inner
        or width % BLOCK
        or chosen.shape != weights.shape
        or len(chosen) != len(x)
    ):
        raise ValueError(f"{experts.count} experts of {inner} on rows {tuple(x.shape)}")


def _is_rows(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.dim() == 2 and x.stride(1) == 1
