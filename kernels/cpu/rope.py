"""Rotary positions in C++ for float32; any other dtype runs the reference (`reference/rope.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import rope as reference
from ..reference.rope import QkNorm
from .lib import ADDRESS, FLOAT, INT, function

_norm_rope = function(
    "treadle_norm_rope",
    (ADDRESS, INT, INT, INT, INT, ADDRESS, FLOAT, ADDRESS, ADDRESS, INT, INT),
)


def rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """See `reference.rope.rope`."""
    if not _is_supported(q, cos_sin) or not _is_supported(k, cos_sin):
        reference.rope(q, k, positions, cos_sin)
        return
    _call(q, None, positions, cos_sin, 0.0)
    _call(k, None, positions, cos_sin, 0.0)


def norm_rope(x: Tensor, weight: Tensor, positions: Tensor, cos_sin: Tensor, eps: float) -> None:
    """See `reference.rope.norm_rope`."""
    if not _is_supported(x, cos_sin):
        reference.norm_rope(x, weight, positions, cos_sin, eps)
        return
    _call(x, weight, positions, cos_sin, eps)


def qk_norm_rope(q: Tensor, k: Tensor, norm: QkNorm, positions: Tensor, cos_sin: Tensor) -> None:
    """See `reference.rope.qk_norm_rope`."""
    if not _is_supported(q, cos_sin) or not _is_supported(k, cos_sin):
        reference.qk_norm_rope(q, k, norm, positions, cos_sin)
        return
    _call(q, norm.q_weight, positions, cos_sin, norm.eps)
    _call(k, norm.k_weight, positions, cos_sin, norm.eps)


def _is_supported(x: Tensor, cos_sin: Tensor) -> bool:
    if x.dtype is not torch.float32 or cos_sin.dtype is not torch.float32:
        return False
    strides = x.stride()
    return strides[2] == 1 and strides[1] == x.shape[2] and cos_sin.is_contiguous()


def _call(x: Tensor, weight: Tensor | None, positions: Tensor, cos_sin: Tensor, eps: float) -> None:
    rows, heads, size = x.shape
    if positions.shape[0] != rows or cos_sin.shape[1] != size:
        sizes = f"{tuple(x.shape)} with {positions.shape[0]} positions"
        raise ValueError(f"rope of {sizes} and a table {tuple(cos_sin.shape)}")
    if positions.dtype is not torch.int64 or positions.stride(0) != 1:
        positions = positions.to(torch.int64).contiguous()
    failed = _norm_rope(
        x.data_ptr(),
        x.stride(0),
        rows,
        heads,
        size,
        None if weight is None else weight.data_ptr(),
        eps,
        positions.data_ptr(),
        cos_sin.data_ptr(),
        cos_sin.shape[0],
        torch.get_num_threads(),
    )
    if failed:
        raise IndexError(f"a position lies outside the rope table of {cos_sin.shape[0]} positions")
