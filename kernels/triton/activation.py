"""Gated activations in Triton: a program makes one block of one row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import activation as reference
from .overlap import await_previous, overlap_options, overlaps

BLOCK = 1024
SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)


def gelu_tanh_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """See `reference.activation.gelu_tanh_mul`."""
    if gate_up.dtype is torch.float64 or gate_up.stride(-1) != 1:
        return reference.gelu_tanh_mul(gate_up, out)
    return _gated(gate_up, out, is_gelu=True)


def silu_mul(gate_up: Tensor, out: Tensor | None = None) -> Tensor:
    """See `reference.activation.silu_mul`."""
    if gate_up.dtype is torch.float64 or gate_up.stride(-1) != 1:
        return reference.silu_mul(gate_up, out)
    return _gated(gate_up, out, is_gelu=False)


def _gated(gate_up: Tensor, out: Tensor | None, *, is_gelu: bool) -> Tensor:
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None:
        out = torch.empty(rows, size, dtype=gate_up.dtype, device=gate_up.device)
    if out.shape != (rows, size) or out.stride(-1) != 1:
        raise ValueError(f"out must be {(rows, size)} with neighbouring columns")
    if out.numel():
        _gated_kernel[(rows, triton.cdiv(size, BLOCK))](
            gate_up, out, gate_up.stride(0), out.stride(0), size,
            IS_GELU=is_gelu, BLOCK=BLOCK, OVERLAPS=overlaps(), **overlap_options(),
        )  # fmt: skip
    return out


@triton.jit
def _gated_kernel(
    gate_up, out, in_row, out_row, size,
    IS_GELU: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    await_previous(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    place = gate_up + row * in_row + column
    gate = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(place + size, mask=inside, other=0.0).to(tl.float32)
    result = active(gate, IS_GELU) * up
    tl.store(out + row * out_row + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def active(gate, IS_GELU: tl.constexpr):
    """GELU in its tanh form, or SiLU, of float32."""
    if IS_GELU:
        # 1 + tanh(x) is 2 * sigmoid(2 x), which is exact in the tails
        inner = SQRT_2_OVER_PI * (gate + 0.044715 * gate * gate * gate)
        result = gate * tl.sigmoid(2.0 * inner)
    else:
        result = gate * tl.sigmoid(gate)
    return result
