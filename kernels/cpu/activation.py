"""Gated activations in C++ for float32; any other dtype runs `reference/activation.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import activation as reference
from .lib import ADDRESS, INT, function

_GELU_TANH, _SILU = 0, 1

_gated = function("treadle_gated", (ADDRESS, INT, INT, INT, INT, ADDRESS, INT, INT))


def gelu_tanh_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """See `reference.activation.gelu_tanh_mul`."""
    if gate_up.dtype is not torch.float32 or gate_up.stride(1) != 1:
        return reference.gelu_tanh_mul(gate_up, out)
    return _call(gate_up, _GELU_TANH, out)


def silu_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """See `reference.activation.silu_mul`."""
    if gate_up.dtype is not torch.float32 or gate_up.stride(1) != 1:
        return reference.silu_mul(gate_up, out)
    return _call(gate_up, _SILU, out)


def _call(gate_up: Tensor, kind: int, out: Tensor | None) -> Tensor:
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None:
        out = torch.empty(rows, size)
    elif out.shape != (rows, size) or out.dtype is not torch.float32 or out.stride(1) != 1:
        raise ValueError(f"out must be float32 {(rows, size)} with dense rows")
    _gated(
        gate_up.data_ptr(),
        gate_up.stride(0),
        rows,
        size,
        kind,
        out.data_ptr(),
        out.stride(0),
        torch.get_num_threads(),
    )
    return out
