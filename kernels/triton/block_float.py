"""Packed rows of small floats on a device, to the bytes of `reference/block_float.py`.

Rows that are not float32, or whose length is no multiple of 32, run the reference. A program takes
`GROUPS` groups of one scale each, whatever rows they lie in; a row with one scale takes a program.
Even and odd columns are loaded apart, since they end up in halves of one byte.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import block_float as reference
from ..reference.block_float import ENTRY_GROUP, GROUP, RowKind
from .small_floats import (
    FP8,
    MXFP4,
    NVFP4,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e8m0_decode,
    fp8_code,
    fp8_power,
    magnitude,
    mxfp4_power,
    nvfp4_scale,
    power_of_two,
)

GROUPS = 32  # a program's; 1,024 values
ENTRY = tl.constexpr(ENTRY_GROUP)


def encode_rows(x: Tensor, kind: RowKind) -> Tensor:
    """See `reference.block_float.encode_rows`."""
    size = x.shape[-1]
    if not _is_grouped(x) or kind > RowKind.FP8_ROW:
        return reference.encode_rows(x, kind)
    x, stride, rows = _rows(x)
    out = torch.empty(*x.shape[:-1], kind.row_bytes(size), dtype=torch.uint8, device=x.device)
    if rows and kind is RowKind.FP8_ROW:
        block = triton.next_power_of_2(size)
        _encode_whole_row[(rows,)](x, stride, out, size, block)
    elif rows:
        group = ENTRY_GROUP if kind is RowKind.NVFP4 else GROUP
        count = rows * (size // group)
        kernel = _encode_fp8 if kind is RowKind.FP8 else _encode_fp4
        grid = (triton.cdiv(count, GROUPS),)
        kernel[grid](x, stride, out, out.shape[-1], size // group, count, group, GROUPS)
    return out


def decode_rows(rows: Tensor, kind: RowKind, size: int) -> Tensor:
    """See `reference.block_float.decode_rows`."""
    if size % GROUP or rows.shape[-1] != kind.row_bytes(size) or kind > RowKind.FP8_ROW:
        return reference.decode_rows(rows, kind, size)
    rows, stride, count = _rows(rows)
    out = torch.empty(*rows.shape[:-1], size, device=rows.device)
    _decode(rows, stride, rows[..., kind.code_bytes(size) :], stride, count, size, out, kind)
    return out


def fp8_dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """See `reference.block_float.fp8_dequantize`."""
    size = codes.shape[-1]
    if size % GROUP or scales.shape != (*codes.shape[:-1], size // GROUP):
        return reference.fp8_dequantize(codes, scales)
    codes, stride, count = _rows(codes.view(torch.uint8))
    scales, scales_stride, _ = _rows(scales.view(torch.uint8))
    out = torch.empty(codes.shape, device=codes.device)
    _decode(codes, stride, scales, scales_stride, count, size, out, RowKind.FP8)
    return out


def fp8_round(x: Tensor) -> Tensor:
    """See `reference.block_float.fp8_round`."""
    if not _is_grouped(x):
        return reference.fp8_round(x)
    return _round(x, RowKind.FP8)


def mxfp4_round(x: Tensor) -> Tensor:
    """See `reference.block_float.mxfp4_round`."""
    if not _is_grouped(x):
        return reference.mxfp4_round(x)
    return _round(x, RowKind.MXFP4)


def _round(x: Tensor, kind: RowKind) -> Tensor:
    x, stride, rows = _rows(x)
    out = torch.empty(x.shape, device=x.device)
    per_row = x.shape[-1] // GROUP
    count = rows * per_row
    if count:
        grid = (triton.cdiv(count, GROUPS),)
        _round_groups[grid](x, stride, out, per_row, count, int(kind), GROUP, GROUPS)
    return out


def _decode(  # noqa: PLR0913 - codes and scales lie apart
    codes: Tensor,
    codes_stride: int,
    scales: Tensor,
    scales_stride: int,
    rows: int,
    size: int,
    out: Tensor,
    kind: RowKind,
) -> None:
    if not rows:
        return
    block = min(1024, triton.next_power_of_2(size))
    grid = (rows, triton.cdiv(size, block))
    at = (codes, codes_stride, scales, scales_stride)
    _decode_row[grid](*at, out, size, int(kind), GROUP, ENTRY_GROUP, block)


def _is_grouped(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.shape[-1] % GROUP == 0


def _rows(x: Tensor) -> tuple[Tensor, int, int]:
    """x with dense rows that lie evenly apart, the elements between rows, the number of rows."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x, x.stride(0), x.shape[0]
    x = x.contiguous()
    return x, x.shape[-1], x.shape[:-1].numel()


@triton.jit
def _places(count, per_row, GROUP: tl.constexpr, GROUPS: tl.constexpr):
    """Rows and first columns of a program's GROUPS, and which of them exist."""
    number = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    return number // per_row, (number % per_row) * GROUP, number < count


@triton.jit(do_not_specialize=["count"])
def _encode_fp8(
    x,
    stride,
    out,
    row_bytes,
    per_row,
    count,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    row, column, exists = _places(count, per_row, GROUP, GROUPS)
    lane = tl.arange(0, GROUP)[None, :]
    at = x + row[:, None] * stride + column[:, None] + lane
    values = tl.load(at, exists[:, None], other=0.0)  # bound: groups that exist
    power = fp8_power(tl.max(magnitude(values), 1))
    codes = fp8_code(values, power_of_two(power)[:, None])
    to = out + row * row_bytes
    tl.store(to[:, None] + column[:, None] + lane, codes.to(tl.uint8), exists[:, None])
    tl.store(to + per_row * GROUP + column // GROUP, (power + 127).to(tl.uint8), exists)


@triton.jit(do_not_specialize=["count"])
def _encode_fp4(
    x,
    stride,
    out,
    row_bytes,
    per_row,
    count,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    row, column, exists = _places(count, per_row, GROUP, GROUPS)
    lane = tl.arange(0, GROUP // 2)[None, :]
    at = x + row[:, None] * stride + column[:, None] + lane * 2
    even = tl.load(at, exists[:, None], other=0.0)  # bound: groups that exist
    odd = tl.load(at + 1, exists[:, None], other=0.0)
    largest = tl.maximum(tl.max(magnitude(even), 1), tl.max(magnitude(odd), 1))
    if GROUP == ENTRY:
        broken = tl.max((even != even).to(tl.int32) | (odd != odd).to(tl.int32), 1) != 0
        byte = nvfp4_scale(tl.where(broken, float("nan"), largest))
        scale = e4m3_decode(byte)
    else:
        power = mxfp4_power(largest)
        byte = power + 127
        scale = power_of_two(power)
    low = e2m1_encode(tl.div_rn(even, scale[:, None]))
    high = e2m1_encode(tl.div_rn(odd, scale[:, None]))
    to = out + row * row_bytes
    codes = (low | (high << 4)).to(tl.uint8)
    tl.store(to[:, None] + column[:, None] // 2 + lane, codes, exists[:, None])
    tl.store(to + per_row * (GROUP // 2) + column // GROUP, byte.to(tl.uint8), exists)


@triton.jit
def _encode_whole_row(
    x,
    stride,
    out,
    size,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < size
    values = tl.load(x + row * stride + column, inside, other=0.0)  # bound: the row's end
    power = fp8_power(tl.max(magnitude(values), 0))
    scale = power_of_two(power)
    codes = fp8_code(values, scale)
    to = out + row * (size + 4)
    tl.store(to + column, codes.to(tl.uint8), inside)
    shift = tl.arange(0, 4)
    bits = scale.to(tl.int32, bitcast=True)
    tl.store(to + size + shift, ((bits >> (shift * 8)) & 255).to(tl.uint8))


@triton.jit
def _decode_row(
    codes,
    codes_stride,
    scales,
    scales_stride,
    out,
    size,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    ENTRY_GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    codes += row * codes_stride
    scales += row * scales_stride
    if (KIND == MXFP4) or (KIND == NVFP4):  # noqa: SIM109 (Triton has no `in`)
        byte = tl.load(codes + column // 2, inside, other=0).to(tl.int32)  # bound: the row's end
        values = e2m1_decode((byte >> ((column % 2) * 4)) & 15)
    else:
        values = e4m3_decode(tl.load(codes + column, inside, other=0))
    if KIND == NVFP4:
        scale = e4m3_decode(tl.load(scales + column // ENTRY_GROUP, inside, other=0))
    elif (KIND == FP8) or (KIND == MXFP4):  # noqa: SIM109
        scale = e8m0_decode(tl.load(scales + column // GROUP, inside, other=0))
    else:
        bits = tl.load(scales).to(tl.int32) | (tl.load(scales + 1).to(tl.int32) << 8)
        bits |= tl.load(scales + 2).to(tl.int32) << 16
        bits |= tl.load(scales + 3).to(tl.int32) << 24
        scale = bits.to(tl.float32, bitcast=True)
    tl.store(out + row * size + column, values * scale, inside)


@triton.jit(do_not_specialize=["count"])
def _round_groups(
    x,
    stride,
    out,
    per_row,
    count,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
):
    row, column, exists = _places(count, per_row, GROUP, GROUPS)
    lane = tl.arange(0, GROUP)[None, :]
    at = x + row[:, None] * stride + column[:, None] + lane
    values = tl.load(at, exists[:, None], other=0.0)  # bound: groups that exist
    largest = tl.max(magnitude(values), 1)
    if KIND == FP8:
        power = fp8_power(largest)
        rounded = e4m3_decode(fp8_code(values, power_of_two(power)[:, None]))
    else:
        power = mxfp4_power(largest)
        rounded = e2m1_decode(e2m1_encode(tl.div_rn(values, power_of_two(power)[:, None])))
    scale = e8m0_decode(power + 127)
    to = out + row[:, None] * (per_row * GROUP) + column[:, None] + lane
    tl.store(to, rounded * scale[:, None], exists[:, None])
