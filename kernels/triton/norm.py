"""RMS norms, one program a row: a row is read once, kept in registers and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import norm as reference
from .overlap import await_previous, overlap_options, overlaps

MAX_SIZE = 1 << 15  # elements of a row that registers of one program hold


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """See `reference.norm.rms_norm`."""
    if not _is_walkable(x) or x.dim() not in (2, 3):
        return reference.rms_norm(x, weight, eps, out)
    if weight.shape != x.shape[-1:] or (out is not None and out.shape != x.shape):
        raise ValueError(f"rms_norm of {tuple(x.shape)} with weight {tuple(weight.shape)}")
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads = x.shape[1] if x.dim() == 3 else 1
    if x.numel():
        block = triton.next_power_of_2(x.shape[-1])
        _norm_kernel[(x.shape[0] * heads,)](
            x, weight, out, heads, *_strides(x), *_strides(out), x.shape[-1], eps,
            BLOCK=block, OVERLAPS=overlaps(), num_warps=_warps(block), **overlap_options(),
        )  # fmt: skip
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.norm.add_rms_norm`."""
    if not _is_walkable(x) or not _is_walkable(residual):
        return reference.add_rms_norm(x, residual, weight, eps)
    return _add(x, residual, None, weight, eps)


def norm_add_rms_norm(
    x: Tensor, residual: Tensor, inner: Tensor, outer: Tensor, eps: float
) -> Tensor:
    """See `reference.norm.norm_add_rms_norm`."""
    if not _is_walkable(x) or not _is_walkable(residual):
        return reference.norm_add_rms_norm(x, residual, inner, outer, eps)
    return _add(x, residual, inner, outer, eps)


def _add(x: Tensor, residual: Tensor, inner: Tensor | None, outer: Tensor, eps: float) -> Tensor:
    rows, size = x.shape
    if residual.shape != x.shape or outer.shape != x.shape[1:]:
        raise ValueError(f"cannot add {tuple(x.shape)} to {tuple(residual.shape)} and norm it")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rows:
        block = triton.next_power_of_2(size)
        _add_norm_kernel[(rows,)](
            x, residual, outer if inner is None else inner, outer, out,
            x.stride(0), residual.stride(0), size, eps,
            HAS_INNER=inner is not None, BLOCK=block, OVERLAPS=overlaps(),
            num_warps=_warps(block), **overlap_options(),
        )  # fmt: skip
    return out


def _strides(x: Tensor) -> tuple[int, int]:
    """Between rows and between heads."""
    return x.stride(0), x.stride(1) if x.dim() == 3 else 0


def _is_walkable(x: Tensor) -> bool:
    """What the kernels can read: rows of up to `MAX_SIZE` neighbours, not float64."""
    return x.dtype is not torch.float64 and x.stride(-1) == 1 and x.shape[-1] <= MAX_SIZE


def _warps(block: int) -> int:
    return min(16, max(1, block // 256))


@triton.jit
def _norm_kernel(
    x, weight, out, heads, x_row, x_head, out_row, out_head, size, eps, BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    row, head = program // heads, program % heads
    column = tl.arange(0, BLOCK)
    inside = column < size
    scale = tl.load(weight + column, mask=inside, other=0.0)
    await_previous(OVERLAPS)
    values = tl.load(x + row * x_row + head * x_head + column, mask=inside, other=0.0)
    normed = _normed(values.to(tl.float32), scale, size, eps)
    place = out + row * out_row + head * out_head + column
    tl.store(place, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _add_norm_kernel(
    x, residual, inner, outer, out, x_row, residual_row, size, eps,
    HAS_INNER: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    inner_scale = tl.load(inner + column, mask=inside, other=0.0)
    outer_scale = tl.load(outer + column, mask=inside, other=0.0)
    await_previous(OVERLAPS)
    kept = residual + row * residual_row + column
    values = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(kept, mask=inside, other=0.0).to(tl.float32)
    if HAS_INNER:
        values = _normed(values, inner_scale, size, eps).to(x.dtype.element_ty).to(tl.float32)
    total = before + values
    rounded = total.to(residual.dtype.element_ty)
    tl.store(kept, rounded, mask=inside)
    normed = _normed(rounded.to(tl.float32), outer_scale, size, eps)
    tl.store(out + row * size + column, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _normed(values, scale, size, eps):
    """`values / sqrt(mean(values^2) + eps) * scale`; lanes outside are 0."""
    mean_square = tl.sum(values * values, axis=0) / size
    return values * tl.rsqrt(mean_square + eps) * scale.to(tl.float32)
