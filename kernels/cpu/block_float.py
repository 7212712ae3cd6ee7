"""Packed rows of small floats in C++, to the bits of `reference/block_float.py`.

Rows that are not float32, or whose length is no multiple of 32, run the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import block_float as reference
from ..reference.block_float import GROUP, RowKind
from .lib import ADDRESS, INT, function

_encode_rows = function(
    "treadle_encode_rows", (INT, ADDRESS, INT, INT, INT, ADDRESS, INT, INT, INT)
)
_decode_rows = function(
    "treadle_decode_rows", (INT, ADDRESS, INT, ADDRESS, INT, INT, INT, ADDRESS, INT)
)
_round_rows = function("treadle_round_rows", (INT, ADDRESS, INT, INT, INT, ADDRESS, INT))


def encode_rows(x: Tensor, kind: RowKind) -> Tensor:
    """See `reference.block_float.encode_rows`."""
    size = x.shape[-1]
    if x.dtype is not torch.float32 or size % GROUP or kind > RowKind.FP8_ROW:
        return reference.encode_rows(x, kind)
    x, stride, rows = _rows(x)
    row_bytes = kind.row_bytes(size)
    out = torch.empty(*x.shape[:-1], row_bytes, dtype=torch.uint8)
    _encode_rows(
        kind,
        x.data_ptr(),
        stride,
        rows,
        size,
        out.data_ptr(),
        row_bytes,
        kind.code_bytes(size),
        torch.get_num_threads(),
    )
    return out


def decode_rows(rows: Tensor, kind: RowKind, size: int) -> Tensor:
    """See `reference.block_float.decode_rows`."""
    if size % GROUP or rows.shape[-1] != kind.row_bytes(size) or kind > RowKind.FP8_ROW:
        return reference.decode_rows(rows, kind, size)
    rows, stride, count = _rows(rows)
    out = torch.empty(*rows.shape[:-1], size)
    codes = rows.data_ptr()
    scales = codes + kind.code_bytes(size)
    threads = torch.get_num_threads()
    _decode_rows(kind, codes, stride, scales, stride, count, size, out.data_ptr(), threads)
    return out


def fp8_dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """See `reference.block_float.fp8_dequantize`."""
    size = codes.shape[-1]
    if size % GROUP or scales.shape != (*codes.shape[:-1], size // GROUP):
        return reference.fp8_dequantize(codes, scales)
    codes, stride, count = _rows(codes)
    scales, scales_stride, _ = _rows(scales)
    out = torch.empty(codes.shape)
    at = (codes.data_ptr(), stride, scales.data_ptr(), scales_stride)
    _decode_rows(RowKind.FP8, *at, count, size, out.data_ptr(), torch.get_num_threads())
    return out


def fp8_round(x: Tensor) -> Tensor:
    """See `reference.block_float.fp8_round`."""
    return _round(x, RowKind.FP8) if _is_grouped(x) else reference.fp8_round(x)


def mxfp4_round(x: Tensor) -> Tensor:
    """See `reference.block_float.mxfp4_round`."""
    return _round(x, RowKind.MXFP4) if _is_grouped(x) else reference.mxfp4_round(x)


def _round(x: Tensor, kind: RowKind) -> Tensor:
    x, stride, rows = _rows(x)
    out = torch.empty(x.shape)
    size, threads = x.shape[-1], torch.get_num_threads()
    _round_rows(kind, x.data_ptr(), stride, rows, size, out.data_ptr(), threads)
    return out


def _is_grouped(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.shape[-1] % GROUP == 0


def _rows(x: Tensor) -> tuple[Tensor, int, int]:
    """x with dense rows that lie evenly apart, the elements between rows, the number of rows."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x, x.stride(0), x.shape[0]
    x = x.contiguous()
    return x, x.shape[-1], x.shape[:-1].numel()
