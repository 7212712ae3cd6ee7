"""Manifold-constrained hyper-connections: N residual streams instead of one. Specification.

A sublayer reads a weighted sum of the streams (`hyper_collapse`) and its output is added to a
mixture of them (`hyper_expand`). All weights come from the streams themselves (`hyper_weights`):

    pre  [N]     how much of each stream a sublayer reads
    post [N]     how much of the output goes to each stream
    comb [N, N]  mixture; comb[i, j] is what old stream i gives to new stream j

`comb` is made nearly doubly stochastic by alternating normalisations (Sinkhorn), so that a mixture
keeps the streams' size. Source: deepseek-v41.md 2.3, 2.4. Arithmetic is in float32, or float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class HyperMatrix:
    """Shapes, for N streams of width D: fn `[2N + N*N, N*D]`, base `[2N + N*N]`, scale `[3]`."""

    fn: Tensor
    base: Tensor
    scale: Tensor
    iterations: int
    eps: float  # of the norm
    floor: float  # added so that nothing is zero


def hyper_weights(x: Tensor, matrix: HyperMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """Shapes: x `[T, N, D]`; returns pre `[T, N]`, post `[T, N]`, comb `[T, N, N]`."""
    flat = x.flatten(1)
    statistic = torch.rsqrt(flat.square().mean(-1, keepdim=True) + matrix.eps)
    return mix_weights((flat @ matrix.fn.T) * statistic, matrix)


def mix_weights(u: Tensor, matrix: HyperMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """The weights for projections u `[T, 2N + N*N]`."""
    n, base, scale, floor = u_streams(u), matrix.base, matrix.scale, matrix.floor
    pre = torch.sigmoid(u[:, :n] * scale[0] + base[:n]) + floor
    post = 2 * torch.sigmoid(u[:, n : 2 * n] * scale[1] + base[n : 2 * n])
    comb = (u[:, 2 * n :] * scale[2] + base[2 * n :]).view(-1, n, n)
    comb = torch.softmax(comb, -1) + floor
    comb = comb / (comb.sum(1, keepdim=True) + floor)
    for _ in range(matrix.iterations - 1):
        comb = comb / (comb.sum(2, keepdim=True) + floor)
        comb = comb / (comb.sum(1, keepdim=True) + floor)
    return pre, post, comb


def u_streams(u: Tensor) -> int:
    """N of a projection with 2N + N*N columns."""
    return math.isqrt(u.shape[1] + 1) - 1


def hyper_collapse(x: Tensor, pre: Tensor) -> Tensor:
    """Shapes: x `[T, N, D]`, pre `[T, N]`; returns `[T, D]`, the weighted sum of the streams."""
    return torch.einsum("tn,tnd->td", pre, x)


def hyper_expand(y: Tensor, post: Tensor, comb: Tensor, x: Tensor) -> Tensor:
    """Shapes: y `[T, D]`, post `[T, N]`, comb `[T, N, N]`, x `[T, N, D]`; returns `[T, N, D]`:
    new stream j is `post[j] * y + sum_i comb[i, j] * x[i]`."""
    return post.unsqueeze(2) * y.unsqueeze(1) + torch.einsum("tij,tid->tjd", comb, x)
