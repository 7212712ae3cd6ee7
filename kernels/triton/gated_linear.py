"""The first half of a gated MLP in Triton: of a single row in one kernel, of more in two.

A program makes some features of gate and the same ones of up, so that what it puts out is done and
nothing of the product is stored.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .activation import active, gelu_tanh_mul, silu_mul
from .linear import Plan, is_walkable, linear
from .overlap import await_previous, begin_next, overlap_options, overlaps


def gelu_tanh_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See `reference.gated_linear.gelu_tanh_linear`."""
    if x.shape[0] != 1 or not is_walkable(x, weight):
        return gelu_tanh_mul(linear(x, weight))
    return _single(x, weight, is_gelu=True)


def silu_linear(x: Tensor, weight: Tensor) -> Tensor:
    """See `reference.gated_linear.silu_linear`."""
    if x.shape[0] != 1 or not is_walkable(x, weight):
        return silu_mul(linear(x, weight))
    return _single(x, weight, is_gelu=False)


def _single(x: Tensor, weight: Tensor, *, is_gelu: bool) -> Tensor:
    size = weight.shape[0] // 2
    if weight.shape[0] % 2:
        raise ValueError(f"{weight.shape[0]} features are no gate and up")
    out = torch.empty(1, size, dtype=x.dtype, device=x.device)
    plan = Plan.streamed(2 * size)
    features = plan.features // 2
    _gated_kernel[(triton.cdiv(size, features),)](
        x, weight, out, weight.stride(0), size, x.shape[1],
        IS_GELU=is_gelu, FEATURES=features, BLOCK=plan.block, STAGES=plan.stages,
        OVERLAPS=overlaps(), num_warps=4, **overlap_options(),
    )  # fmt: skip
    return out


@triton.jit
def _gated_kernel(
    x, weight, out, weight_row, size, inputs,
    IS_GELU: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    column = tl.arange(0, BLOCK)
    here, inside = (feature < size)[:, None], (column < inputs)[None, :]
    of_gate = weight + feature.to(tl.int64)[:, None] * weight_row + column[None, :]
    of_up = of_gate + size.to(tl.int64) * weight_row
    begin_next(OVERLAPS)
    gate = tl.load(of_gate, mask=here & inside, other=0.0)
    up = tl.load(of_up, mask=here & inside, other=0.0)
    await_previous(OVERLAPS)
    values = tl.load(x + column, mask=column < inputs, other=0.0).to(tl.float32)[None, :]
    gates, ups = values * gate.to(tl.float32), values * up.to(tl.float32)
    for start in tl.range(BLOCK, inputs, BLOCK, num_stages=STAGES):
        there = start + column < inputs
        gate = tl.load(of_gate + start, mask=here & there[None, :], other=0.0)
        up = tl.load(of_up + start, mask=here & there[None, :], other=0.0)
        values = tl.load(x + start + column, mask=there, other=0.0).to(tl.float32)[None, :]
        gates += values * gate.to(tl.float32)
        ups += values * up.to(tl.float32)
    kind = out.dtype.element_ty
    gated = tl.sum(gates, 1).to(kind).to(tl.float32)
    result = active(gated, IS_GELU) * tl.sum(ups, 1).to(kind).to(tl.float32)
    tl.store(out + feature, result.to(kind), mask=feature < size)
