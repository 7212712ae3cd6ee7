"""N-gram memory: hashes of the last tokens pick table rows, a gate adds them to the residual
streams. Specification. Source: deepseek-v41.md 2.9.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .block_float import fp8_dequantize


def engram_rows(ids: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor) -> Tensor:
    """Table rows of each position.

    Shapes: ids `[T, G]` int64, compressed ids of positions p, p-1, .. p-(G-1) (the padding id where
    there is none); multipliers `[G]`; primes and offsets `[(G-1), heads]`. Returns int64
    `[T, (G-1) * heads]`, n-gram size by n-gram size.
    """
    mixed = ids * multipliers
    running, rows = mixed[:, 0], []
    for n in range(1, ids.shape[1]):
        running = running ^ mixed[:, n]
        rows.append(running[:, None] % primes[n - 1] + offsets[n - 1])
    return torch.cat(rows, 1)


def table_rows(codes: Tensor, scales: Tensor, rows: Tensor) -> Tensor:
    """Rows of a table of small floats.

    Shapes: codes e4m3 `[M, d]`, scales e8m0 as uint8 `[M, d/32]`, both perhaps in memory of the
    host that the device reads; rows int64 `[...]`; float32 `[..., d]`.
    """
    return fp8_dequantize(codes[rows], scales[rows])


def engram_gate(x: Tensor, key: Tensor, value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x + gate * value`, the gate being a sigmoid of the signed root of a normed dot product.

    Shapes: x and key `[T, N, D]`, value `[T, D]`, weight `[N, D]`; returns `[T, N, D]`.
    """
    size = x.shape[2]
    # In float64: of single precision torch rounds the last few of all values differently.
    own, other = _row_sums(x.square()).double() / size, _row_sums(key.square()).double() / size
    dot = _row_sums(x * weight * key).double() * size**-0.5
    dot = dot * torch.rsqrt(own + eps) * torch.rsqrt(other + eps)
    gate = torch.sigmoid(torch.copysign(dot.abs().clamp(min=1e-6).sqrt(), dot)).to(x.dtype)
    return x + gate.unsqueeze(2) * value.unsqueeze(1)


def _row_sums(x: Tensor) -> Tensor:
    """Sums over the last axis, half upon half: torch's own order depends on how many rows there
    are, and a row may not depend on its neighbours."""
    while x.shape[-1] > 1 and x.shape[-1] % 2 == 0:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    total = x[..., 0]
    for channel in range(1, x.shape[-1]):
        total = total + x[..., channel]
    return total
