"""Matrices that stay packed, and products with them. Specification.

    kind     data                                   scales
    float32  [N/16, K, 16] float32                  none
    fp8      [N/16, K, 16] e4m3 as uint8            [N/16, K/32, 16] e8m0 as uint8
    fp4      [N/16, K/2, 16] uint8, two e2m1        the same

16 output features lie side by side, so that one load meets one input of each; of two inputs in a
byte the even one is the low half. N is filled up with zeros to a multiple of 16. Experts of one
size are one matrix, one after the other. A weight that is not a number makes the scale of its group
not a number.

Invariant: a row of a product depends on that row of x alone, as in `linear.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from .block_float import GROUP, e2m1_decode, e8m0_decode, fp8_round
from .linear import linear

BLOCK = 16
_SCALE_ONE = 127
_SCALE_NAN = 255


class MatrixKind(IntEnum):
    """The numbers are those of `cpu/isa.h`."""

    FLOAT32 = 0
    FP8 = 1
    FP4 = 2


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """See the module; N is `out_features`, K `in_features`."""

    kind: MatrixKind
    data: Tensor
    scales: Tensor | None
    out_features: int
    in_features: int


def pack_float32(weight: Tensor) -> PackedMatrix:
    """Shapes: weight `[N, K]`."""
    rows, columns = weight.shape
    return PackedMatrix(MatrixKind.FLOAT32, _blocks(weight.float(), 0), None, rows, columns)


def pack_fp8(codes: Tensor, scales: Tensor) -> PackedMatrix:
    """Shapes: codes e4m3 `[N, K]`, scales e8m0 as uint8 `[ceil(N/32), K/32]`, one per 32x32 tile.

    Raises `ValueError` when K is no multiple of 32 or the scales are not so many.
    """
    rows, columns = codes.shape
    if columns % GROUP or scales.shape != (-(-rows // GROUP), columns // GROUP):
        raise ValueError(f"scales {tuple(scales.shape)} for weights {tuple(codes.shape)}")
    spread = scales.repeat_interleave(GROUP, 0)[:rows]
    broken = codes.float().isnan().view(rows, -1, GROUP).any(2)
    spread = spread.masked_fill(broken, _SCALE_NAN)
    data = _blocks(codes.view(torch.uint8), 0)
    return PackedMatrix(MatrixKind.FP8, data, _blocks(spread, _SCALE_ONE), rows, columns)


def pack_fp4(packed: Tensor, scales: Tensor) -> PackedMatrix:
    """Shapes: packed e2m1 uint8 `[N, K/2]`, scales e8m0 as uint8 `[N, K/32]`.

    Raises `ValueError` when K is no multiple of 32 or the scales are not so many.
    """
    rows, columns = packed.shape[0], packed.shape[1] * 2
    if columns % GROUP or scales.shape != (rows, columns // GROUP):
        raise ValueError(f"scales {tuple(scales.shape)} for packed weights {tuple(packed.shape)}")
    data = _blocks(packed, 0)
    return PackedMatrix(MatrixKind.FP4, data, _blocks(scales, _SCALE_ONE), rows, columns)


def join_packed(parts: list[PackedMatrix]) -> PackedMatrix:
    """All output features, in order. Raises `ValueError` unless all are of one kind and input size
    and all but the last fill their blocks."""
    first = parts[0]
    alike = {(part.kind, part.in_features) for part in parts}
    if len(alike) > 1 or any(part.out_features % BLOCK for part in parts[:-1]):
        raise ValueError(f"cannot join matrices {[(p.kind, p.out_features) for p in parts]}")
    scales = [part.scales for part in parts if part.scales is not None]
    return PackedMatrix(
        first.kind,
        torch.cat([part.data for part in parts]),
        torch.cat(scales) if scales else None,
        sum(part.out_features for part in parts),
        first.in_features,
    )


def unpack_matrix(w: PackedMatrix) -> Tensor:
    """float32 `[N, K]`."""
    data = w.data.transpose(1, 2).flatten(0, 1)[: w.out_features]
    if w.scales is None:
        return data.contiguous()
    if w.kind is MatrixKind.FP8:
        values = data.contiguous().view(torch.float8_e4m3fn).float()
    else:
        values = e2m1_decode(torch.stack((data & 0xF, data >> 4), -1).flatten(1))
    scales = w.scales.transpose(1, 2).flatten(0, 1)[: w.out_features]
    return values * e8m0_decode(scales).repeat_interleave(GROUP, 1)


def linear_packed(x: Tensor, w: PackedMatrix, *, is_rounding: bool, groups: int = 1) -> Tensor:
    """`x @ w.T`, of x rounded to fp8 in groups of 32 where `is_rounding`.

    Shapes: x float32 `[T, groups * K]`, rows may be strided; returns float32 `[T, N]`. With several
    groups each has an equal number of output features, made from its own K inputs. Raises
    `ValueError` when sizes disagree.
    """
    check_linear_packed(x, w, groups)
    weight = unpack_matrix(w)
    x = fp8_round(x) if is_rounding else x
    inputs = x.view(len(x), groups, w.in_features) if groups > 1 else x.unsqueeze(1)
    parts = weight.view(groups, -1, w.in_features)
    return torch.cat([linear(inputs[:, g], parts[g]) for g in range(groups)], 1)


def check_linear_packed(x: Tensor, w: PackedMatrix, groups: int) -> None:
    """Raises `ValueError` as `linear_packed` does."""
    if x.dim() != 2 or x.shape[1] != groups * w.in_features:
        raise ValueError(f"x {tuple(x.shape)} does not fit {groups} groups of {w.in_features}")
    if groups > 1 and w.out_features % (groups * BLOCK):
        raise ValueError(f"{w.out_features} features in {groups} groups of whole blocks")


def _blocks(rows: Tensor, fill: int) -> Tensor:
    """`[N, n]` as `[ceil(N/16), n, 16]`."""
    count, size = rows.shape
    if missing := -count % BLOCK:
        rows = torch.cat((rows, rows.new_full((missing, size), fill)))
    return rows.view(-1, BLOCK, size).transpose(1, 2).contiguous()
