"""Hyper-connections of four float32 streams on a device. Specification: `reference/hyper.py`, which
anything else runs.

The weights take two kernels: one multiplies the streams with the matrix and sums their squares, a
share of the channels each (`SHARES`, whatever the number of rows: a row's sum has one order), the
other adds the shares and normalises. A collapse and an expansion read the streams once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import hyper as reference
from ..reference.hyper import HyperMatrix

STREAMS = 4
WEIGHTS = 2 * STREAMS + STREAMS * STREAMS
PADDED = 32  # of the weights; the place after the last holds the sum of squares
ROWS = 16  # of a program that multiplies
SHARES = 64
BLOCK = 1024
N = tl.constexpr(STREAMS)


def hyper_weights(x: Tensor, matrix: HyperMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """See `reference.hyper.hyper_weights`. Raises `ValueError` when sizes disagree."""
    parts = (matrix.fn, matrix.base, matrix.scale)
    if not _is_supported(x) or any(not _is_dense(part) for part in parts):
        return reference.hyper_weights(x, matrix)
    rows, _, width = x.shape
    shapes = [tuple(part.shape) for part in parts]
    if shapes != [(WEIGHTS, STREAMS * width), (WEIGHTS,), (3,)]:
        raise ValueError(f"hyper_weights of streams {tuple(x.shape)} with matrices {shapes}")
    out = x.new_empty(rows, WEIGHTS)
    size = STREAMS * width
    shares = min(SHARES, triton.cdiv(size, 256))
    sums = x.new_empty(shares, rows, PADDED)
    if rows:
        share = triton.cdiv(triton.cdiv(size, shares), 64) * 64
        grid = (triton.cdiv(rows, ROWS), shares)
        _multiply[grid](x, matrix.fn, sums, rows, size, share, WEIGHTS, PADDED, ROWS, 64)
        _mix[(rows,)](
            sums, matrix.base, matrix.scale, out, rows, shares, size,
            matrix.eps, matrix.floor, matrix.iterations, WEIGHTS, PADDED,
            num_warps=1,
        )  # fmt: skip
    comb = out[:, 2 * STREAMS :].view(rows, STREAMS, STREAMS)
    return out[:, :STREAMS], out[:, STREAMS : 2 * STREAMS], comb


def hyper_collapse(x: Tensor, pre: Tensor) -> Tensor:
    """See `reference.hyper.hyper_collapse`."""
    rows, _, width = x.shape
    if not _is_supported(x) or not _is_rows(pre, (rows, STREAMS)):
        return reference.hyper_collapse(x, pre)
    out = x.new_empty(rows, width)
    if rows:
        block = min(BLOCK, triton.next_power_of_2(width))
        _collapse[(rows, triton.cdiv(width, block))](x, pre, pre.stride(0), out, width, block)
    return out


def hyper_expand(y: Tensor, post: Tensor, comb: Tensor, x: Tensor) -> Tensor:
    """See `reference.hyper.hyper_expand`."""
    rows, _, width = x.shape
    if not (
        _is_supported(x)
        and _is_rows(y, (rows, width))
        and _is_rows(post, (rows, STREAMS))
        and _is_rows(comb, (rows, STREAMS, STREAMS))
        and comb.stride(1) == STREAMS
    ):
        return reference.hyper_expand(y, post, comb, x)
    out = torch.empty_like(x)
    if rows:
        block = min(BLOCK, triton.next_power_of_2(width))
        _expand[(rows, triton.cdiv(width, block))](
            y, y.stride(0), post, post.stride(0), comb, comb.stride(0), x, out, width, block
        )
    return out


def _is_supported(x: Tensor) -> bool:
    return _is_dense(x) and x.shape[1] == STREAMS


def _is_dense(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_contiguous()


def _is_rows(x: Tensor, shape: tuple[int, ...]) -> bool:
    """Rows may lie apart, what is in them is dense."""
    return x.dtype is torch.float32 and x.shape == shape and x.stride(-1) == 1


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    x, fn, sums, rows, size, share,
    WEIGHTS: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    weight = tl.arange(0, PADDED)
    lane = tl.arange(0, CHANNELS)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, size)
    total = tl.zeros([ROWS, PADDED], tl.float32)
    squares = tl.zeros([ROWS], tl.float32)
    for start in range(first, last, CHANNELS):
        channel = start + lane
        inside = channel < last
        is_real = (row < rows)[:, None] & inside[None, :]  # bounds: rows, and the share's end
        values = tl.load(x + row[:, None] * size + channel[None, :], is_real, other=0.0)
        is_real = (weight < WEIGHTS)[None, :] & inside[:, None]
        matrix = tl.load(fn + weight[None, :] * size + channel[:, None], is_real, other=0.0)
        total = tl.dot(values, matrix, total, input_precision="ieee")
        squares += tl.sum(values * values, 1)
    total = tl.where((weight == WEIGHTS)[None, :], squares[:, None], total)
    to = sums + (tl.program_id(1) * rows + row[:, None]) * PADDED + weight[None, :]
    tl.store(to, total, (row < rows)[:, None])


@triton.jit(do_not_specialize=["rows"])
def _mix(
    sums, base, scale, out, rows, shares, size, eps, floor, iterations,
    WEIGHTS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    vector, square = tl.arange(0, N), tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    pre, post = tl.zeros([N], tl.float32), tl.zeros([N], tl.float32)
    comb, squares = tl.zeros([N, N], tl.float32), 0.0
    for share in range(shares):
        at = sums + (share * rows + row) * PADDED
        pre += tl.load(at + vector)
        post += tl.load(at + N + vector)
        comb += tl.load(at + 2 * N + square)
        squares += tl.load(at + WEIGHTS)
    statistic = tl.rsqrt(squares / size + eps)
    pre = pre * statistic * tl.load(scale) + tl.load(base + vector)
    post = post * statistic * tl.load(scale + 1) + tl.load(base + N + vector)
    comb = comb * statistic * tl.load(scale + 2) + tl.load(base + 2 * N + square)
    out += row * WEIGHTS
    tl.store(out + vector, tl.sigmoid(pre) + floor)
    tl.store(out + N + vector, 2 * tl.sigmoid(post))
    comb = tl.exp(comb - tl.max(comb, 1)[:, None])
    comb = comb / tl.sum(comb, 1)[:, None] + floor
    comb = comb / (tl.sum(comb, 0)[None, :] + floor)
    for _ in range(1, iterations):
        comb = comb / (tl.sum(comb, 1)[:, None] + floor)
        comb = comb / (tl.sum(comb, 0)[None, :] + floor)
    tl.store(out + 2 * N + square, comb)


@triton.jit
def _collapse(x, pre, pre_stride, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < width
    total = tl.zeros([BLOCK], tl.float32)
    for stream in tl.static_range(N):
        values = tl.load(x + (row * N + stream) * width + channel, inside, other=0.0)
        total += tl.load(pre + row * pre_stride + stream) * values
    tl.store(out + row * width + channel, total, inside)  # bound: the width of a stream


@triton.jit
def _expand(y, y_stride, post, post_stride, comb, comb_stride, x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < width  # bound: the width of a stream
    added = tl.load(y + row * y_stride + channel, inside, other=0.0)
    x += row * N * width + channel
    zero = tl.load(x, inside, other=0.0)
    one = tl.load(x + width, inside, other=0.0)
    two = tl.load(x + 2 * width, inside, other=0.0)
    three = tl.load(x + 3 * width, inside, other=0.0)
    for stream in tl.static_range(N):
        mix = comb + row * comb_stride + stream
        total = tl.load(post + row * post_stride + stream) * added + tl.load(mix) * zero
        total += tl.load(mix + N) * one + tl.load(mix + 2 * N) * two
        total += tl.load(mix + 3 * N) * three
        tl.store(out + (row * N + stream) * width + channel, total, inside)
