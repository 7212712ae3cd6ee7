"""Block-scaled small floats: FP8 (e4m3), FP4 (e2m1), and the packed rows made of them.

    format   values               scale per group            bytes of n values
    fp8      e4m3                 e8m0 per 32: 2^k            n + n/32
    mxfp4    e2m1, two a byte     e8m0 per 32: 2^k            n/2 + n/32
    nvfp4    e2m1, two a byte     e4m3 per 16, unscaled       n/2 + n/16

    fp8_row  e4m3                 float32 per row: 2^k     n + 4
    bfloat16, float32: each value as it is               2n, 4n

A packed row is the codes, then the scales; of two e2m1 codes in a byte the even column is the low
half. Rounding is to nearest, ties to the even code. A group of fp8 or mxfp4 that holds an infinity
or not-a-number gets a scale that is not a number: what is broken stays visible. Quantise and
dequantise are inverse on values (a dequantised fp8 or mxfp4 row quantises to the same values,
though its scale byte may differ; nvfp4 only where the scale is a normal e4m3 number).

Source: deepseek-v41.md 2.2, 4.1-4.3. Powers of two are taken from the bits of the float, so that
exact ones stay exact; divisions are IEEE.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

FP8_MAX = 448.0
FP4_MAX = 6.0
GROUP = 32
ENTRY_GROUP = 16
FP8_FLOOR = 1e-4  # smallest |x| of a group that a scale is made for
_E8M0_BIAS = 127
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_TABLE = torch.tensor([*_E2M1, *(-v for v in _E2M1)], dtype=torch.float32)


class RowKind(IntEnum):
    """How a row of values is packed; the numbers are those of `cpu/isa.h`."""

    FP8 = 0
    MXFP4 = 1
    NVFP4 = 2
    FP8_ROW = 3
    BFLOAT16 = 4
    FLOAT32 = 5

    def code_bytes(self, size: int) -> int:
        """Bytes of the codes of `size` values."""
        if self in (RowKind.MXFP4, RowKind.NVFP4):
            return size // 2
        return size * {RowKind.BFLOAT16: 2, RowKind.FLOAT32: 4}.get(self, 1)

    def row_bytes(self, size: int) -> int:
        """Bytes of `size` values, codes and scales."""
        scales = {RowKind.NVFP4: size // ENTRY_GROUP, RowKind.FP8_ROW: 4}.get(self, size // GROUP)
        return self.code_bytes(size) + (0 if self in _PLAIN else scales)


_PLAIN = {RowKind.BFLOAT16: torch.bfloat16, RowKind.FLOAT32: torch.float32}


def encode_rows(x: Tensor, kind: RowKind) -> Tensor:
    """Shapes: x `[..., n]`, n a multiple of 32; returns packed rows, uint8 `[..., row_bytes]`."""
    if kind in _PLAIN:
        return x.to(_PLAIN[kind]).contiguous().view(torch.uint8)
    if kind is RowKind.FP8:
        codes, scales = fp8_quantize(x)
        return torch.cat((codes.view(torch.uint8), scales), -1)
    if kind is RowKind.MXFP4:
        codes, scales = mxfp4_quantize(x)
        return torch.cat((pack_nibbles(codes), scales), -1)
    if kind is RowKind.NVFP4:
        codes, scales = nvfp4_quantize(x)
        return torch.cat((pack_nibbles(codes), scales.view(torch.uint8)), -1)
    codes, scales = fp8_row_quantize(x)
    return torch.cat((codes.view(torch.uint8), scales.unsqueeze(-1).view(torch.uint8)), -1)


def decode_rows(rows: Tensor, kind: RowKind, size: int) -> Tensor:
    """Inverse of `encode_rows`: float32 `[..., size]`."""
    if kind in _PLAIN:
        return rows.contiguous().view(_PLAIN[kind]).float()
    split = kind.code_bytes(size)
    codes, scales = rows[..., :split], rows[..., split:].contiguous()
    if kind is RowKind.MXFP4:
        return mxfp4_dequantize(unpack_nibbles(codes), scales)
    if kind is RowKind.NVFP4:
        return nvfp4_dequantize(unpack_nibbles(codes), scales.view(torch.float8_e4m3fn))
    values = codes.contiguous().view(torch.float8_e4m3fn)
    if kind is RowKind.FP8:
        return fp8_dequantize(values, scales)
    return values.float() * scales.view(torch.float32)


def ceil_log2(x: Tensor) -> Tensor:
    """The least k with 2^k >= x, for positive normal float32. int32 of x's shape."""
    bits = x.float().view(torch.int32)
    return (bits >> 23) - _E8M0_BIAS + (bits & 0x7FFFFF).ne(0).int()


def power_of_two(k: Tensor) -> Tensor:
    """2^k in float32, exact; k int32 in -127 .. 127."""
    normal = (k + _E8M0_BIAS) << 23
    return torch.where(k < -126, torch.full_like(k, 1 << 22), normal).view(torch.float32)


def e8m0_decode(code: Tensor) -> Tensor:
    """2^(code - 127) in float32; code uint8, 255 is NaN."""
    exponent = code.to(torch.int32)
    return power_of_two(exponent - _E8M0_BIAS).masked_fill(exponent == 255, torch.nan)


def e2m1_encode(x: Tensor) -> Tensor:
    """Codes 0..15 (uint8) of float values: nearest, ties to the even code, saturating at 6. The
    sign survives rounding to zero."""
    wide = x.float().abs()
    # Halfway points between neighbours; at a tie the even one of the two codes is taken.
    code = torch.zeros(x.shape, dtype=torch.uint8, device=x.device)
    for upper, (low, high) in enumerate(zip(_E2M1, _E2M1[1:], strict=False), start=1):
        middle = (low + high) / 2
        code += ((wide >= middle) if upper % 2 == 0 else (wide > middle)).to(torch.uint8)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def e2m1_decode(code: Tensor) -> Tensor:
    """Float32 values of codes 0..15."""
    return _E2M1_TABLE.to(code.device)[code.int()]


def pack_nibbles(code: Tensor) -> Tensor:
    """`[..., n]` codes -> `[..., n/2]` bytes; the even column is the low half."""
    return code[..., 0::2] | (code[..., 1::2] << 4)


def unpack_nibbles(packed: Tensor) -> Tensor:
    """`[..., n/2]` uint8 -> `[..., n]` codes."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def fp8_quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Shapes: x `[..., n]`, n a multiple of 32; codes e4m3 `[..., n]`, scales e8m0 as uint8
    `[..., n/32]`."""
    groups = _groups(x.float(), GROUP)
    largest = _largest(groups).clamp(min=FP8_FLOOR)
    power = ceil_log2(largest * (1 / FP8_MAX))
    scale = power_of_two(power).unsqueeze(-1)
    codes = (groups / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return codes.flatten(-2), (power + _E8M0_BIAS).to(torch.uint8)


def fp8_dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """Inverse of `fp8_quantize`, float32."""
    groups = _groups(codes.float(), GROUP)
    return (groups * e8m0_decode(scales).unsqueeze(-1)).flatten(-2)


def fp8_round(x: Tensor) -> Tensor:
    """The values that `x` has after quantising and dequantising, float32."""
    return fp8_dequantize(*fp8_quantize(x))


def mxfp4_quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Shapes: x `[..., n]`, n a multiple of 32; codes uint8 0..15 `[..., n]`, scales e8m0 as uint8
    `[..., n/32]`."""
    groups = _groups(x.float(), GROUP)
    largest = _largest(groups).clamp(min=FP4_MAX * 2.0**-126)
    power = ceil_log2(largest / FP4_MAX)
    codes = e2m1_encode(groups / power_of_two(power).unsqueeze(-1))
    return codes.flatten(-2), (power + _E8M0_BIAS).to(torch.uint8)


def mxfp4_dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """Inverse of `mxfp4_quantize`, float32."""
    groups = _groups(e2m1_decode(codes), GROUP)
    return (groups * e8m0_decode(scales).unsqueeze(-1)).flatten(-2)


def mxfp4_round(x: Tensor) -> Tensor:
    """The values that `x` has after quantising and dequantising, float32."""
    return mxfp4_dequantize(*mxfp4_quantize(x))


def nvfp4_quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """Shapes: x `[..., n]`, n a multiple of 16; codes uint8 0..15 `[..., n]`, scales e4m3
    `[..., n/16]`. The division is by the scale as rounded."""
    groups = _groups(x.float(), ENTRY_GROUP)
    largest = groups.abs().amax(-1)
    scale = (largest / FP4_MAX).clamp(2.0**-9, FP8_MAX).to(torch.float8_e4m3fn)
    codes = e2m1_encode(groups / scale.float().unsqueeze(-1))
    return codes.flatten(-2), scale


def nvfp4_dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """Inverse of `nvfp4_quantize`, float32."""
    groups = _groups(e2m1_decode(codes), ENTRY_GROUP)
    return (groups * scales.float().unsqueeze(-1)).flatten(-2)


def fp8_tiles(weight: Tensor, scales: Tensor) -> Tensor:
    """A matrix with one scale per 32x32 tile. Shapes: weight e4m3 `[N, K]`, scales e8m0 as uint8
    `[ceil(N/32), ceil(K/32)]`; float32 `[N, K]`."""
    rows, columns = weight.shape
    spread = e8m0_decode(scales).repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)
    return weight.float() * spread[:rows, :columns]


def fp4_matrix(packed: Tensor, scales: Tensor) -> Tensor:
    """A matrix of packed e2m1. Shapes: packed uint8 `[N, K/2]`, scales e8m0 as uint8 `[N, K/32]`;
    float32 `[N, K]`."""
    return mxfp4_dequantize(unpack_nibbles(packed), scales)


def fp8_row_quantize(x: Tensor) -> tuple[Tensor, Tensor]:
    """One scale for a whole row. Shapes: x `[..., n]`; codes e4m3 `[..., n]`, scales float32
    powers of two `[...]`."""
    power = ceil_log2(_largest(x.float()).clamp(min=FP8_FLOOR) * (1 / FP8_MAX))
    scale = power_of_two(power)
    codes = (x.float() / scale.unsqueeze(-1)).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return codes, scale


def _largest(groups: Tensor) -> Tensor:
    """The largest magnitude along the last axis; infinity where one is not a number."""
    return groups.abs().amax(-1).nan_to_num(torch.inf, torch.inf)


def _groups(x: Tensor, size: int) -> Tensor:
    """`[..., n]` as `[..., n/size, size]`."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)
