"""Matrix products: kernels of our own for a single row, the vendor's library for more.

For one row a product is one pass over the weights, at the speed of the memory or not. A row's
result may depend on how many rows share the call: the library picks its kernel by the shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .device import is_interpreted, num_processors
from .overlap import await_previous, begin_next, overlap_options, overlaps

MOST_FEATURES = 65536  # beyond, as in heads, the library is as fast
SMALL = 4096  # features and inputs up to which the first block is a good part of all there is
FEW_PROGRAMS = 6  # per processor
TILE = 4096  # weights that a program of a large matrix asks for at a time
MOST_UNEVEN = 1.15  # work of the processor that has most programs, over the mean
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Plan:
    """`features` of a program, `block` inputs per turn, `stages` of blocks on their way: 0 for one
    at a time."""

    features: int
    block: int
    stages: int

    @classmethod
    def of(cls, features: int, inputs: int) -> Plan:
        """Sizes of small matrices, tiles and stages are the fastest that were measured on an H200,
        for matrices of 10 to 235 MB. Of a large one programs are as wide as lets processors end
        together: 160 programs on 132 of them ran at 67 % of the memory's speed, 1,280 at 92 %."""
        if max(features, inputs) <= SMALL:
            return cls(4, 1024 if features // 4 <= FEW_PROGRAMS * num_processors() else 512, 0)
        return cls.streamed(features)

    @classmethod
    def streamed(cls, features: int) -> Plan:
        """Of a large matrix."""
        width = next((x for x in (16, 8) if _is_even(features / x)), 4)
        return cls(width, TILE // width, 4)


def _is_even(programs: float) -> bool:
    share = programs / num_processors()
    return math.ceil(share) <= MOST_UNEVEN * share


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See `reference.linear.linear`."""
    features = weight.shape[0]
    if x.shape[0] != 1 or features > MOST_FEATURES or not is_walkable(x, weight):
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


def is_walkable(x: Tensor, weight: Tensor) -> bool:
    """Whether kernels of a single row can read these."""
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
    begin_next(OVERLAPS)
    w = tl.load(at + column[None, :], mask=here & (column < inputs)[None, :], other=0.0)
    await_previous(OVERLAPS)
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
    """Several turns ahead of itself, through shared memory; the first one ahead of the kernel that
    makes x."""
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    column = tl.arange(0, BLOCK)
    here = (feature < num_features)[:, None]
    at = weight + feature.to(tl.int64)[:, None] * weight_row + column[None, :]
    begin_next(OVERLAPS)
    w = tl.load(at, mask=here & (column < inputs)[None, :], other=0.0)
    await_previous(OVERLAPS)
    values = tl.load(x + column, mask=column < inputs, other=0.0)
    total = values.to(tl.float32)[None, :] * w.to(tl.float32)
    for start in tl.range(BLOCK, inputs, BLOCK, num_stages=STAGES):
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
