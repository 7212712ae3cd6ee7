"""Products with packed matrices on a device. Specification: `reference/packed_linear.py`.

Weights are unpacked in registers and multiplied by tensor cores. That is exact but for the order of
a sum: a weight's code is exact in bfloat16, so is an input that was rounded to fp8, and any other
input is cut into three parts that are. A group's scale multiplies the sum over the group. Float32
weights are multiplied in float32.

Inputs of fp4 matrices lie with the even columns first, as the halves of a byte are unpacked apart.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import packed_linear as reference
from ..reference.block_float import GROUP
from ..reference.packed_linear import BLOCK, MatrixKind, PackedMatrix
from .device import is_interpreted
from .small_floats import (
    e2m1_operands,
    e4m3_decode,
    e4m3_operand,
    e8m0_decode,
    fp8_code,
    fp8_power,
    magnitude,
    power_of_two,
    product,
)

IS_FAST = not is_interpreted()  # bfloat16 and instructions of the device
OPERAND = torch.bfloat16 if IS_FAST else torch.float32
COLUMNS = 64  # output features of a program
# Rows of a program. From 64 on a device multiplies by other instructions, with other last bits.
SOME_ROWS, MANY_ROWS = 16, 32
UNROLL = 4  # groups between two turns of the loop over inputs
PROGRAMS = 264  # that keep a device busy: two for each multiprocessor of a large one
SMALLEST_SHARE = 512  # inputs
ADDED = 1024  # sums of a program that adds shares
SIDE = tl.constexpr(BLOCK)
G = tl.constexpr(GROUP)
HALF = tl.constexpr(GROUP // 2)
FP8, FP4 = tl.constexpr(int(MatrixKind.FP8)), tl.constexpr(int(MatrixKind.FP4))


def linear_packed(x: Tensor, w: PackedMatrix, *, is_rounding: bool, groups: int = 1) -> Tensor:
    """See `reference.packed_linear.linear_packed`."""
    reference.check_linear_packed(x, w, groups)
    if is_rounding and w.in_features % GROUP:
        raise ValueError(f"rows of {w.in_features} values cannot be rounded in groups of {GROUP}")
    if x.dtype is not torch.float32 or x.stride(1) != 1:
        x = x.float().contiguous()
    x = prepare(x, w.kind, groups, is_rounding=is_rounding)
    rows, features = x.shape[0], w.out_features
    out = torch.empty(rows, features, device=x.device)
    if not rows or not features:
        return out
    per_group = features // groups
    columns = COLUMNS if groups == 1 else math.gcd(COLUMNS, per_group)
    tile = tile_rows(rows)
    programs = triton.cdiv(features, columns)
    splits, share = shares_of(programs, w.in_features)
    sums = out if splits == 1 else torch.empty(splits, rows, features, device=x.device)
    grid = (programs, triton.cdiv(rows, tile), splits)
    sizes = (rows, features, w.in_features, per_group, share)
    if w.kind is MatrixKind.FLOAT32:
        _multiply_wide[grid](x, x.stride(0), w.data, sums, *sizes, tile, columns, G.value)
    else:
        args = (x, x.stride(0), w.data, w.scales, sums, *sizes, int(w.kind))
        _multiply[grid](
            *args,
            parts_of(is_rounding=is_rounding),
            tile,
            columns,
            unrolled(w.in_features),
            IS_FAST,
        )
    if splits > 1:
        count = out.numel()
        _add_shares[(triton.cdiv(count, ADDED),)](sums, out, count, splits, ADDED)
    return out


def shares_of(programs: int, size: int) -> tuple[int, int]:
    """Into how many shares the inputs of a product are cut, so that a device has enough programs,
    and inputs of a share. The number of rows has no say: a row's sum has one order."""
    splits = max(1, min(16, PROGRAMS // programs, size // SMALLEST_SHARE))
    share = triton.cdiv(triton.cdiv(size, splits), UNROLL * GROUP) * UNROLL * GROUP
    return int(triton.cdiv(size, share)), int(share)


def tile_rows(rows: int) -> int:
    """Rows of a program."""
    return SOME_ROWS if rows <= SOME_ROWS else MANY_ROWS


def unrolled(size: int) -> int:
    """Groups of inputs that a turn of the loop takes: a divisor of all."""
    return math.gcd(UNROLL, size // GROUP)


def parts_of(*, is_rounding: bool) -> int:
    """Parts that an input is cut into: one that is rounded is exact in bfloat16."""
    return 1 if is_rounding else 3


def prepare(x: Tensor, kind: MatrixKind, groups: int, *, is_rounding: bool) -> Tensor:
    """x as a product with such a matrix reads it: rounded, and for fp4 the even columns of each of
    `groups` parts of a row before the odd ones."""
    is_split = kind is MatrixKind.FP4
    if not is_rounding and not is_split:
        return x
    is_narrow = is_rounding and kind is not MatrixKind.FLOAT32
    out = torch.empty(x.shape, dtype=OPERAND if is_narrow else x.dtype, device=x.device)
    rows, size = x.shape
    if count := x.numel() // GROUP:
        grid = (triton.cdiv(count, 32),)
        _prepare[grid](
            x, x.stride(0), out, size // GROUP, size // groups, count, is_split, is_rounding, 32
        )
    return out


@triton.jit(do_not_specialize=["count"])
def _prepare(
    x, stride, out, per_row, part, count,
    IS_SPLIT: tl.constexpr, IS_ROUNDING: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    row, column, exists = number // per_row, (number % per_row) * G, number < count
    place = column[:, None] + tl.arange(0, G)[None, :]
    at = x + row[:, None] * stride + place
    values = tl.load(at, exists[:, None], other=0.0)  # bound: groups that exist
    if IS_ROUNDING:
        power = fp8_power(tl.max(magnitude(values), 1))[:, None]
        values = e4m3_decode(fp8_code(values, power_of_two(power))) * e8m0_decode(power + 127)
    if IS_SPLIT:
        inner = place % part
        place = place - inner + (inner % 2) * (part // 2) + inner // 2
    to = out + row[:, None] * (per_row * G) + place
    tl.store(to, values.to(out.dtype.element_ty), exists[:, None])


@triton.jit
def add_group(
    total, x, is_row, data, scales, is_column, group, size,
    KIND: tl.constexpr, PARTS: tl.constexpr, IS_FAST: tl.constexpr,
):  # fmt: skip
    """`total` and the products over the inputs of one group. Pointers: x `[rows, 1]` to the rows,
    data and scales `[1, columns]` to the first byte of each feature; `size` is K."""
    scale = e8m0_decode(tl.load(scales + group * SIDE, is_column, other=127))  # bound: features
    if KIND == FP4:
        lane = group * HALF + tl.arange(0, HALF)
        byte = tl.load(data + lane[:, None] * SIDE, is_column, other=0)
        even = tl.load(x + lane[None, :], is_row, other=0.0)  # bound: rows
        odd = tl.load(x + size // 2 + lane[None, :], is_row, other=0.0)
        low, high = e2m1_operands(byte, IS_FAST)
        found = product(even, low, PARTS) + product(odd, high, PARTS)
    else:
        lane = group * G + tl.arange(0, G)
        code = tl.load(data + lane[:, None] * SIDE, is_column, other=0)
        values = tl.load(x + lane[None, :], is_row, other=0.0)
        found = product(values, e4m3_operand(code, IS_FAST), PARTS)
    return total + found * scale


@triton.jit
def first_bytes(column, per_column):
    """Offset of the first of `per_column` elements of each feature."""
    return (column // SIDE) * (per_column * SIDE) + column % SIDE


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    x, stride, data, scales, out, rows, features, size, per_group, share,
    KIND: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    UNROLL: tl.constexpr, IS_FAST: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_column, is_row = (column < features)[None, :], (row < rows)[:, None]
    part = (tl.program_id(0) * COLUMNS) // per_group  # of the inputs
    x += row[:, None] * stride + part * size
    num_bytes = size // 2 if KIND == FP4 else size
    data += first_bytes(column, num_bytes)[None, :]
    scales += first_bytes(column, size // G)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = tl.program_id(2) * share
    for start in range(first // G, tl.minimum(first + share, size) // G, UNROLL):
        for step in tl.static_range(UNROLL):
            total = add_group(
                total, x, is_row, data, scales, is_column, start + step, size,
                KIND, PARTS, IS_FAST,
            )  # fmt: skip
    row += tl.program_id(2) * rows
    tl.store(out + row[:, None] * features + column[None, :], total, is_row & is_column)


@triton.jit(do_not_specialize=["rows"])
def _multiply_wide(
    x, stride, data, out, rows, features, size, per_group, share,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_column, is_row = (column < features)[None, :], (row < rows)[:, None]
    part = (tl.program_id(0) * COLUMNS) // per_group
    x += row[:, None] * stride + part * size
    data += first_bytes(column, size)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    first = tl.program_id(2) * share
    last = tl.minimum(first + share, size)
    for start in range(first, last, INPUTS):
        lane = start + tl.arange(0, INPUTS)
        inside = lane < last  # bound: inputs of a feature
        values = tl.load(x + lane[None, :], is_row & inside[None, :], other=0.0)
        weight = tl.load(data + lane[:, None] * SIDE, is_column & inside[:, None], other=0.0)
        total = tl.dot(values, weight, total, input_precision="ieee")
    row += tl.program_id(2) * rows
    tl.store(out + row[:, None] * features + column[None, :], total, is_row & is_column)


@triton.jit(do_not_specialize=["count"])
def _add_shares(sums, out, count, splits, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count  # bound: the last row's end
    total = tl.zeros([BLOCK], tl.float32)
    for split in range(splits):
        total += tl.load(sums + split * count.to(tl.int64) + place, inside, other=0.0)
    tl.store(out + place, total, inside)
