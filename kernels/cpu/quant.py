"""Packing int8 weights, and rows of packed ones, in C++. Specification: `reference/quant.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference.quant import BLOCK, GROUP, Q8Weight, check_packable
from .lib import ADDRESS, FLOAT, INT, function

_pack_q8 = function("treadle_pack_q8", (ADDRESS, INT, INT, ADDRESS, ADDRESS, INT))
_q8_rows = function(
    "treadle_q8_rows", (ADDRESS, ADDRESS, INT, INT, ADDRESS, INT, FLOAT, ADDRESS, INT)
)


def pack_q8(weight: Tensor) -> Q8Weight:
    """See `reference.quant.pack_q8`."""
    out_features, in_features = check_packable(weight)
    weight = weight.float().contiguous()
    blocks = -(-out_features // BLOCK)
    make = torch.zeros if out_features % BLOCK else torch.empty
    data = make(blocks, in_features // 4, BLOCK, 4, dtype=torch.int8)
    scales = make(blocks, in_features // GROUP, BLOCK, dtype=torch.float16)
    failed = _pack_q8(
        weight.data_ptr(),
        out_features,
        in_features,
        data.data_ptr(),
        scales.data_ptr(),
        torch.get_num_threads(),
    )
    if failed:
        raise ValueError("int8 packing: a group of weights is not finite or exceeds float16 scales")
    return Q8Weight(data, scales, out_features, in_features)


def q8_rows(w: Q8Weight, ids: Tensor, scale: float = 1.0) -> Tensor:
    """See `reference.quant.q8_rows`."""
    ids = ids.to(torch.int64).contiguous()
    out = torch.empty(ids.shape[0], w.in_features)
    failed = _q8_rows(
        w.data.data_ptr(),
        w.scales.data_ptr(),
        w.out_features,
        w.in_features,
        ids.data_ptr(),
        ids.shape[0],
        scale,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    if failed:
        raise IndexError(f"row ids must lie in [0, {w.out_features})")
    return out
