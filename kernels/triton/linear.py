"""Matrix products: kernels of our own for a single row, the vendor's library for more.

For one row a product is one pass over the weights, at the speed of the memory or not. A row's
result may depend on how many rows share the call: the library picks its kernel by the shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .device import is_interpreted, num_processors
from .overlap import await_previous, overlap_options, overlaps

MOST_FEATURES = 65536  # beyond, as in heads, the library is as fast
SMALL = 4096  # features and inputs up to which the first block is a good part of all there is
FEW_PROGRAMS = 6  # per processor
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Plan:
    """`features` of a program, `block` inputs per turn, `stages` of blocks on their way: 0 for one
    that is asked for ahead of the wait."""

    features: int
    block: int
    stages: int

    @classmethod
    def of(cls, features: int, inputs: int) -> Plan:
        """The fastest that was measured on an H200, for matrices of 10 to 235 MB."""
        if max(features, inputs) > SMALL:
            return cls(16, 256, 4)
        return cls(4, 1024 if features // 4 <= FEW_PROGRAMS * num_processors() else 512, 0)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `reference.linear.linear`."""
    features = weight.shape[0]
    if x.shape[0] != 1 or features > MOST_FEATURES or not _is_walkable(x, weight):
        return F.linear(x, weight, bias)
    out = torch.empty(1, features, dtype=x.dtype, device=x.device)
    plan = Plan.of(features, x.shape[1])
    kernel = _stream_kernel if plan.stages else _ahead_kernel
    kernel[(triton.cdiv(features, plan.features),)](
        x, weight, weight if bias is None else bias, out, weight.stride(0), features, x.shape[1],
        HAS_BIAS=bias is not None, FEATURES=plan.features, BLOCK=plan.block, STAGES=plan.stages,
        OVERLAPS=overlaps(), num_warps=4, **overlap_options(),
    )  # fmt: skip
    return out


def _is_walkable(x: Tensor, weight: Tensor) -> bool:
    is_known = x.dtype in HALVES and weight.dtype == x.dtype and x.shape[1] == weight.shape[1]
    is_there = x.is_cuda or is_interpreted()
    return is_known and is_there and x.stride(1) == 1 and weight.stride(1) == 1


@triton.jit
def _ahead_kernel(
    x, weight, bias, out, weight_row, num_features, inputs,
    HAS_BIAS: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    """One turn ahead of itself, and the first one ahead of the kernel that makes x."""
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    column = tl.arange(0, BLOCK)
    here = (feature < num_features)[:, None]
    at = weight + feature.to(tl.int64)[:, None] * weight_row
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    w = tl.load(at + column[None, :], mask=here & (column < inputs)[None, :], other=0.0)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    total = tl.zeros((FEATURES, BLOCK), tl.float32)
    for start in tl.range(0, inputs, BLOCK):
        ahead = start + BLOCK + column
        after = tl.load(at + ahead[None, :], mask=here & (ahead < inputs)[None, :], other=0.0)
        values = tl.load(x + start + column, mask=start + column < inputs, other=0.0)
        total += values.to(tl.float32)[None, :] * w.to(tl.float32)
        w = after
    _finish(total, bias, out, feature, num_features, HAS_BIAS)


@triton.jit
def _stream_kernel(
    x, weight, bias, out, weight_row, num_features, inputs,
    HAS_BIAS: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Several turns ahead of itself, through shared memory."""
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    column = tl.arange(0, BLOCK)
    here = (feature < num_features)[:, None]
    at = weight + feature.to(tl.int64)[:, None] * weight_row + column[None, :]
    await_previous(OVERLAPS)
    total = tl.zeros((FEATURES, BLOCK), tl.float32)
    for start in tl.range(0, inputs, BLOCK, num_stages=STAGES):
        inside = start + column < inputs
        w = tl.load(at + start, mask=here & inside[None, :], other=0.0)
        values = tl.load(x + start + column, mask=inside, other=0.0)
        total += values.to(tl.float32)[None, :] * w.to(tl.float32)
    _finish(total, bias, out, feature, num_features, HAS_BIAS)


@triton.jit
def _finish(total, bias, out, feature, num_features, HAS_BIAS: tl.constexpr):
    result = tl.sum(total, 1)
    if HAS_BIAS:
        added = tl.load(bias + feature, mask=feature < num_features, other=0.0)
        result += added.to(tl.float32)
    tl.store(out + feature, result.to(out.dtype.element_ty), mask=feature < num_features)
