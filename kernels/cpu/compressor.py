"""Pooling of positions in C++ for float32; anything else runs `reference/compressor.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import compressor as reference
from .lib import ADDRESS, INT, function

_pool_pairs = function(
    "treadle_pool_pairs", (ADDRESS, ADDRESS, ADDRESS, ADDRESS, INT, INT, ADDRESS, INT)
)


def pool_pairs(even: Tensor, even_gate: Tensor, odd: Tensor, odd_gate: Tensor) -> Tensor:
    """See `reference.compressor.pool_pairs`. Raises `ValueError` when sizes disagree."""
    parts = (even, even_gate, odd, odd_gate)
    if any(part.dtype is not torch.float32 for part in parts):
        return reference.pool_pairs(*parts)
    if any(part.shape != even.shape for part in parts):
        raise ValueError(f"pool_pairs of {[tuple(part.shape) for part in parts]}")
    dense = [part.contiguous() for part in parts]
    out = torch.empty(even.shape)
    addresses = [part.data_ptr() for part in dense]
    _pool_pairs(*addresses, *even.shape, out.data_ptr(), torch.get_num_threads())
    return out
