"""N-gram memory in C++ for float32; anything else runs `reference/engram.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import engram as reference
from .block_float import fp8_dequantize
from .lib import ADDRESS, FLOAT, INT, function

_engram_gate = function(
    "treadle_engram_gate",
    (ADDRESS, ADDRESS, INT, ADDRESS, INT, ADDRESS, INT, INT, INT, FLOAT, ADDRESS, INT),
)


def table_rows(codes: Tensor, scales: Tensor, rows: Tensor) -> Tensor:
    """See `reference.engram.table_rows`."""
    return fp8_dequantize(codes[rows], scales[rows])


def engram_gate(x: Tensor, key: Tensor, value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.engram.engram_gate`; key and value may be parts of one wider row. Raises
    `ValueError` when sizes disagree."""
    if any(part.dtype is not torch.float32 for part in (x, key, value, weight)):
        return reference.engram_gate(x, key, value, weight, eps)
    rows, streams, width = x.shape
    if key.shape != x.shape or value.shape != (rows, width) or weight.shape != (streams, width):
        shapes = [tuple(part.shape) for part in (key, value, weight)]
        raise ValueError(f"engram_gate of streams {tuple(x.shape)} with {shapes}")
    x, weight = x.contiguous(), weight.contiguous()
    key = key if key.stride()[1:] == (width, 1) else key.contiguous()
    value = value if value.stride(1) == 1 else value.contiguous()
    out = torch.empty(x.shape)
    _engram_gate(
        x.data_ptr(),
        key.data_ptr(),
        key.stride(0),
        value.data_ptr(),
        value.stride(0),
        weight.data_ptr(),
        rows,
        streams,
        width,
        eps,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
