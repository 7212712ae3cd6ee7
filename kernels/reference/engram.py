"""N-gram memory: hashes of the last tokens pick table rows, a gate adds them to the residual
streams. Specification. Source: deepseek-v41.md 2.9.
"""

from __future__ import annotations

import torch
from torch import Tensor


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


def engram_gate(x: Tensor, key: Tensor, value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x + gate * value`, the gate being a sigmoid of the signed root of a normed dot product.

    Shapes: x and key `[T, N, D]`, value `[T, D]`, weight `[N, D]`; returns `[T, N, D]`.
    """
    norms = torch.rsqrt(x.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps)
    dot = (x * weight * key).sum(-1) * norms * x.shape[2] ** -0.5
    gate = torch.sigmoid(torch.copysign(dot.abs().clamp(min=1e-6).sqrt(), dot))
    return x + gate.unsqueeze(2) * value.unsqueeze(1)
