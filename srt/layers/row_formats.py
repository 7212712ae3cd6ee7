"""How a row of cached values is kept: packed small floats, or plain ones. Bytes in pools are uint8.

    choice  compressed entry       index key              window row
    fp4     e2m1, e4m3 per 16      e2m1, e8m0 per 32      e4m3, e8m0 per 32
    fp8     e4m3, e8m0 per 32      e4m3, one fp32 scale   e4m3, e8m0 per 32
    bfloat16 and float32: each value as it is

A row is its codes, then its scales. With fp4 a row of 512 values takes 288, 68 (of 128) and 528
bytes. Source: deepseek-v41.md 4.1-4.4. float32 is for checking numerics only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from treadle.kernels import ops


class RowFormat(Protocol):
    """`encode` takes float32 `[..., n]` to uint8 `[..., row_bytes]`, `decode` back."""

    @property
    def row_bytes(self) -> int: ...

    def encode(self, x: Tensor) -> Tensor: ...

    def decode(self, rows: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class PlainRows:
    size: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def encode(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).contiguous().view(torch.uint8)

    def decode(self, rows: Tensor) -> Tensor:
        return rows.contiguous().view(self.dtype).float()


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    size: int

    @property
    def row_bytes(self) -> int:
        return self.size + self.size // 32

    def encode(self, x: Tensor) -> Tensor:
        codes, scales = ops.fp8_quantize(x)
        return torch.cat((codes.view(torch.uint8), scales), -1)

    def decode(self, rows: Tensor) -> Tensor:
        codes = rows[..., : self.size].contiguous().view(torch.float8_e4m3fn)
        return ops.fp8_dequantize(codes, rows[..., self.size :])


@dataclass(frozen=True, slots=True)
class Mxfp4Rows:
    size: int

    @property
    def row_bytes(self) -> int:
        return self.size // 2 + self.size // 32

    def encode(self, x: Tensor) -> Tensor:
        codes, scales = ops.mxfp4_quantize(x)
        return torch.cat((ops.pack_nibbles(codes), scales), -1)

    def decode(self, rows: Tensor) -> Tensor:
        half = self.size // 2
        return ops.mxfp4_dequantize(ops.unpack_nibbles(rows[..., :half]), rows[..., half:])


@dataclass(frozen=True, slots=True)
class Nvfp4Rows:
    size: int

    @property
    def row_bytes(self) -> int:
        return self.size // 2 + self.size // 16

    def encode(self, x: Tensor) -> Tensor:
        codes, scales = ops.nvfp4_quantize(x)
        return torch.cat((ops.pack_nibbles(codes), scales.view(torch.uint8)), -1)

    def decode(self, rows: Tensor) -> Tensor:
        half = self.size // 2
        scales = rows[..., half:].contiguous().view(torch.float8_e4m3fn)
        return ops.nvfp4_dequantize(ops.unpack_nibbles(rows[..., :half]), scales)


@dataclass(frozen=True, slots=True)
class Fp8KeyRows:
    """One float32 scale, a power of two, for the whole row."""

    size: int

    @property
    def row_bytes(self) -> int:
        return self.size + 4

    def encode(self, x: Tensor) -> Tensor:
        codes, scale = ops.fp8_row_quantize(x)
        return torch.cat((codes.view(torch.uint8), scale.unsqueeze(-1).view(torch.uint8)), -1)

    def decode(self, rows: Tensor) -> Tensor:
        codes = rows[..., : self.size].contiguous().view(torch.float8_e4m3fn)
        scale = rows[..., self.size :].contiguous().view(torch.float32)
        return codes.float() * scale


@dataclass(frozen=True, slots=True)
class RowFormats:
    entry: RowFormat
    key: RowFormat
    window: RowFormat

    @classmethod
    def of(cls, kv_dtype: str, head_dim: int, key_dim: int) -> RowFormats:
        """`kv_dtype`: fp4, fp8, bfloat16 or float32."""
        if kv_dtype == "fp4":
            return cls(Nvfp4Rows(head_dim), Mxfp4Rows(key_dim), Fp8Rows(head_dim))
        if kv_dtype == "fp8":
            return cls(Fp8Rows(head_dim), Fp8KeyRows(key_dim), Fp8Rows(head_dim))
        dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[kv_dtype]
        rows = PlainRows(head_dim, dtype)
        return cls(rows, PlainRows(key_dim, dtype), rows)
