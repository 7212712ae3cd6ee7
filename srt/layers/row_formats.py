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

from torch import Tensor

from treadle.kernels import ops
from treadle.kernels.ops import RowKind


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of `size` values. `encode` takes float32 `[..., size]` to uint8 `[..., row_bytes]`,
    `decode` back."""

    size: int
    kind: RowKind

    @property
    def row_bytes(self) -> int:
        return self.kind.row_bytes(self.size)

    def encode(self, x: Tensor) -> Tensor:
        return ops.encode_rows(x, self.kind)

    def decode(self, rows: Tensor) -> Tensor:
        return ops.decode_rows(rows, self.kind, self.size)


@dataclass(frozen=True, slots=True)
class RowFormats:
    entry: PackedRows
    key: PackedRows
    window: PackedRows

    @classmethod
    def of(cls, kv_dtype: str, head_dim: int, key_dim: int) -> RowFormats:
        """`kv_dtype`: fp4, fp8, bfloat16 or float32."""
        window = PackedRows(head_dim, RowKind.FP8)
        if kv_dtype == "fp4":
            entry, key = RowKind.NVFP4, RowKind.MXFP4
            return cls(PackedRows(head_dim, entry), PackedRows(key_dim, key), window)
        if kv_dtype == "fp8":
            return cls(window, PackedRows(key_dim, RowKind.FP8_ROW), window)
        plain = {"bfloat16": RowKind.BFLOAT16, "float32": RowKind.FLOAT32}[kv_dtype]
        rows = PackedRows(head_dim, plain)
        return cls(rows, PackedRows(key_dim, plain), rows)
