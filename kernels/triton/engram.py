"""N-gram memory on a device. Specification: `reference/engram.py`. Other dtypes than float32 run
the reference.

A program gates one stream of one row: two passes over its channels, the first for three sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..reference import engram as reference
from ..reference.block_float import GROUP
from .small_floats import GROUP as G
from .small_floats import e4m3_decode, e8m0_decode

BLOCK = 1024


def engram_rows(ids: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor) -> Tensor:
    """See `reference.engram.engram_rows`. Raises `ValueError` when sizes disagree."""
    rows, grams = ids.shape
    if multipliers.shape != (grams,) or primes.shape[0] != grams - 1:
        raise ValueError(f"engram_rows of {grams} ids with primes {tuple(primes.shape)}")
    heads = primes.shape[1]
    out = ids.new_empty(rows, (grams - 1) * heads)
    if rows and heads:
        parts = (part.contiguous() for part in (ids, multipliers, primes, offsets))
        block = triton.next_power_of_2(heads)
        _engram_rows[(rows,)](*parts, out, grams, heads, block)
    return out


def table_rows(codes: Tensor, scales: Tensor, rows: Tensor) -> Tensor:
    """See `reference.engram.table_rows`. A table in pinned memory of the host is read from there,
    row by row, by the device itself. Raises `ValueError` when sizes disagree."""
    size = codes.shape[1]
    if size % GROUP or scales.shape != (len(codes), size // GROUP):
        raise ValueError(f"a table of {tuple(codes.shape)} with scales {tuple(scales.shape)}")
    out = torch.empty(*rows.shape, size, device=rows.device)
    if rows.numel():
        tables = codes.view(torch.uint8), scales.view(torch.uint8)
        block = triton.next_power_of_2(size)
        _table_rows[(rows.numel(),)](*tables, rows.contiguous(), out, size, block)
    return out


def engram_gate(x: Tensor, key: Tensor, value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `reference.engram.engram_gate`; key and value may be parts of one wider row. Raises
    `ValueError` when sizes disagree."""
    if any(part.dtype is not torch.float32 for part in (x, key, value, weight)):
        return reference.engram_gate(x, key, value, weight, eps)
    rows, streams, width = x.shape
    if key.shape != x.shape or value.shape != (rows, width) or weight.shape != (streams, width):
        shapes = [tuple(part.shape) for part in (key, value, weight)]
        raise ValueError(f"engram_gate of streams {tuple(x.shape)} with {shapes}")
    x, weight = x.contiguous(), weight.contiguous()
    key = key if key.stride()[1:] == (width, 1) else key.contiguous()
    value = value if value.stride(1) == 1 else value.contiguous()
    out = torch.empty_like(x)
    if rows:
        block = min(BLOCK, triton.next_power_of_2(width))
        _engram_gate[(rows, streams)](
            x, key, key.stride(0), value, value.stride(0), weight, out, width, eps, block
        )
    return out


@triton.jit
def _engram_rows(
    ids,
    multipliers,
    primes,
    offsets,
    out,
    grams,
    heads,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, BLOCK)
    inside = head < heads
    running = tl.load(ids + row * grams) * tl.load(multipliers)
    for n in range(1, grams):
        running = running ^ (tl.load(ids + row * grams + n) * tl.load(multipliers + n))
        place = (n - 1) * heads + head
        prime = tl.load(primes + place, inside, other=1)  # bound: heads of one size of n-gram
        found = running % prime + tl.load(offsets + place, inside, other=0)
        tl.store(out + row * (grams - 1) * heads + place, found, inside)


@triton.jit
def _table_rows(codes, scales, rows, out, size, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    row, column = tl.load(rows + place), tl.arange(0, BLOCK)[None, :]
    inside = column < size  # bound: the row's end
    code = tl.load(codes + row * size + column, inside, other=0)
    scale = tl.load(scales + row * (size // G) + column // G, inside, other=127)
    tl.store(out + place * size + column, e4m3_decode(code) * e8m0_decode(scale), inside)


@triton.jit
def _engram_gate(
    x,
    key,
    key_stride,
    value,
    value_stride,
    weight,
    out,
    width,
    eps,
    BLOCK: tl.constexpr,
):
    row, stream = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x += (row * tl.num_programs(1) + stream) * width
    out += (row * tl.num_programs(1) + stream) * width
    key += row * key_stride + stream * width
    value += row * value_stride
    weight += stream * width
    lane = tl.arange(0, BLOCK)
    own, other, dot = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), 0.0
    dot = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        inside = start + lane < width
        a = tl.load(x + start + lane, inside, other=0.0)  # bound: the width of a stream
        b = tl.load(key + start + lane, inside, other=0.0)
        own += a * a
        other += b * b
        dot += a * tl.load(weight + start + lane, inside, other=0.0) * b
    scale = tl.sqrt_rn(width.to(tl.float32))
    total = tl.div_rn(tl.sum(dot, 0), scale)
    total *= tl.rsqrt(tl.sum(own, 0) / width + eps) * tl.rsqrt(tl.sum(other, 0) / width + eps)
    size = tl.abs(total)
    root = tl.sqrt_rn(tl.where(size < 1e-6, 1e-6, size))  # keeps what is not a number
    negative = (total.to(tl.int32, bitcast=True) >> 31) != 0
    gate = tl.sigmoid(tl.where(negative, -root, root))
    for start in range(0, width, BLOCK):
        inside = start + lane < width
        a = tl.load(x + start + lane, inside, other=0.0)
        v = tl.load(value + start + lane, inside, other=0.0)
        tl.store(out + start + lane, a + gate * v, inside)
