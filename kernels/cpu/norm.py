"""RMS norms in C++ for float32; any other dtype runs the reference (`reference/norm.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import norm as reference
from .lib import ADDRESS, FLOAT, INT, function

_rms_norm = function(
    "treadle_rms_norm", (ADDRESS, INT, INT, INT, INT, ADDRESS, FLOAT, ADDRESS, INT, INT)
)
_add_rms_norm = function(
    "treadle_add_rms_norm",
    (ADDRESS, INT, ADDRESS, INT, INT, INT, ADDRESS, ADDRESS, FLOAT, ADDRESS, INT),
)


def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """See `reference.norm.rms_norm`."""
    if not _is_dense(x) or not _is_dense(weight) or (out is not None and not _is_dense(out)):
        return reference.rms_norm(x, weight, eps, out)
    shape = x.shape
    if not 2 <= len(shape) <= 3:
        raise ValueError(f"rms_norm wants [T, C] or [T, H, D], not {tuple(shape)}")
    if weight.shape != shape[-1:] or (out is not None and out.shape != shape):
        raise ValueError(f"rms_norm of {tuple(shape)} with weight {tuple(weight.shape)}")
    if out is None:
        out = torch.empty(shape)
    _rms_norm(
        x.data_ptr(),
        x.stride(0),
        shape[0],
        shape[1] if len(shape) == 3 else 1,
        shape[-1],
        weight.data_ptr(),
        eps,
        out.data_ptr(),
        out.stride(0),
        torch.get_num_threads(),
    )
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.norm.add_rms_norm`."""
    if not _all_rows(x, residual) or not _is_dense(weight):
        return reference.add_rms_norm(x, residual, weight, eps)
    return _add(x, residual, None, weight, eps)


def norm_add_rms_norm(
    x: Tensor, residual: Tensor, inner: Tensor, outer: Tensor, eps: float
) -> Tensor:
    """See `reference.norm.norm_add_rms_norm`."""
    if not _all_rows(x, residual) or not _is_dense(inner) or not _is_dense(outer):
        return reference.norm_add_rms_norm(x, residual, inner, outer, eps)
    return _add(x, residual, inner, outer, eps)


def _add(x: Tensor, residual: Tensor, inner: Tensor | None, outer: Tensor, eps: float) -> Tensor:
    rows, size = x.shape
    if residual.shape != x.shape or outer.shape != x.shape[1:]:
        raise ValueError(f"cannot add {tuple(x.shape)} to {tuple(residual.shape)} and norm it")
    out = torch.empty(rows, size)
    _add_rms_norm(
        x.data_ptr(),
        x.stride(0),
        residual.data_ptr(),
        residual.stride(0),
        rows,
        size,
        None if inner is None else inner.data_ptr(),
        outer.data_ptr(),
        eps,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def _all_rows(x: Tensor, residual: Tensor) -> bool:
    return x.dim() == 2 and _is_dense(x) and _is_dense(residual)


def _is_dense(x: Tensor) -> bool:
    """Float32 whose axes after the first are contiguous: what the kernels can walk."""
    if x.dtype is not torch.float32:
        return False
    if x.is_contiguous():
        return True
    strides = x.stride()
    return strides[-1] == 1 and (len(strides) == 2 or strides[1] == x.shape[2])
