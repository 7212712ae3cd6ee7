"""Rotary pairs in C++ for float32; anything else runs `reference/rope_pairs.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import rope_pairs as reference
from .lib import ADDRESS, INT, function

_rope_pairs = function(
    "treadle_rope_pairs", (ADDRESS, INT, INT, INT, ADDRESS, ADDRESS, INT, INT, ADDRESS, INT)
)


def rope_pairs(
    x: Tensor, positions: Tensor, frequencies: Tensor, *, inverse: bool = False
) -> Tensor:
    """See `reference.rope_pairs.rope_pairs`. Raises `ValueError` when sizes disagree."""
    if x.dtype is not torch.float32 or frequencies.dtype is not torch.float32:
        return reference.rope_pairs(x, positions, frequencies, inverse=inverse)
    rows, size, half = x.shape[0], x.shape[-1], frequencies.shape[0]
    if positions.shape != (rows,) or 2 * half > size or positions.dtype is not torch.int64:
        raise ValueError(f"{tuple(positions.shape)} positions, {half} pairs, x {tuple(x.shape)}")
    x, positions, frequencies = x.contiguous(), positions.contiguous(), frequencies.contiguous()
    out = torch.empty(x.shape)
    _rope_pairs(
        x.data_ptr(),
        rows,
        x.shape[1:-1].numel(),
        size,
        positions.data_ptr(),
        frequencies.data_ptr(),
        half,
        inverse,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
