"""What the attention kernels of pages and of windows share: tiles, the running softmax, splits.

A program has M lanes, one for each (row, query head) of one kv head:

    lane    0 1 2 | 3 4 5 | ...          heads of a group side by side, so K and V are read once
    row     0 0 0 | 1 1 1 |

and walks over keys in blocks, keeping per lane the highest score, the sum of weights and the
weighted sum of values. Scores are in powers of two. Where a single row would leave the device idle,
its keys are split among programs and `combine` puts the parts together. The number of parts follows
from shapes alone, never from lengths, so a captured launch is right at any length; which is also
why a row's last bits may depend on how many requests share the call.

A step may hold long runs beside single rows. Each kind has a kernel with a grid for the most there
can be; a program without work ends at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .device import num_processors
from .overlap import await_previous

LOG2_E = 1.4426950408889634
MAX_SPLITS = 32
FEW_RUNS = 256
PROGRAMS_PER_PROCESSOR = 4
ROW_LANES = 16  # the least that a matrix product takes


@dataclass(frozen=True, slots=True)
class Tiles:
    """Sizes of a program: `lanes` of which `rows * group` are in use, and `keys` of a block."""

    lanes: int
    rows: int
    keys: int
    warps: int
    stages: int

    @classmethod
    def of(cls, group: int, head_dim: int, dtype: torch.dtype) -> Tiles:
        """For runs of many rows."""
        is_wide = head_dim > 128
        if dtype is torch.float32:
            lanes, keys, stages = 32 if is_wide else 64, 32, 1
        else:
            lanes, keys, stages = 128, 32 if is_wide else 64, 2 if is_wide else 3
        lanes = max(lanes, triton.next_power_of_2(group))
        return cls(lanes, lanes // group, keys, 4 if lanes <= 64 else 8, stages)

    @classmethod
    def of_row(cls, group: int, head_dim: int, dtype: torch.dtype, *, is_alone: bool) -> Tiles:
        """For single rows. `is_alone`: so few that all their programs run at once."""
        lanes = max(ROW_LANES, triton.next_power_of_2(group))
        is_small = dtype is torch.float32 or (head_dim > 128 and not is_alone)
        keys = 32 if is_small or head_dim > 256 else 64
        return cls(lanes, 1, keys, 4, 2)


@dataclass(frozen=True, slots=True)
class Parts:
    """Results of split rows: sums [n, H, splits, D], their highest scores and weights [.., 2]."""

    splits: int
    sums: Tensor
    weights: Tensor

    @classmethod
    def empty(cls, q: Tensor, rows: int, kv_heads: int, longest: int, keys: int = 64) -> Parts:
        """For `rows` single rows like those of q, each seeing up to `longest` keys, in parts of
        `keys` at the least."""
        wanted = PROGRAMS_PER_PROCESSOR * num_processors() // max(1, rows * kv_heads)
        splits = max(1, min(MAX_SPLITS, wanted, -(-longest // keys)))
        splits = 1 << (splits.bit_length() - 1)
        heads, size = q.shape[1:]
        wide = {"dtype": torch.float32, "device": q.device}
        if splits == 1:
            return cls(1, q, q)
        return cls(
            splits,
            torch.empty(rows, heads, splits, size, **wide),  # type: ignore[call-overload]
            torch.empty(rows, heads, splits, 2, **wide),  # type: ignore[call-overload]
        )


def check_heads(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Query heads of each kv head. Raises `ValueError` or `TypeError` for what is not read."""
    heads, size = q.shape[1:]
    kv_heads = k.shape[-2]
    if heads % kv_heads or k.shape[-1] != size or v.shape != k.shape:
        raise ValueError(f"{heads} query heads of {size} do not fit keys {tuple(k.shape)}")
    for x in (q, k, v):
        if x.stride(-1) != 1 or x.stride(-2) != size:
            raise TypeError("heads of a row must be neighbours")
    return heads // kv_heads


def runs_block(runs: Tensor) -> int:
    """One size for almost every step: each is a kernel of its own to compile."""
    return max(FEW_RUNS, int(triton.next_power_of_2(max(1, runs.shape[0]))))


@triton.jit
def find_run(runs, num_runs, tile, WIDTH: tl.constexpr, FIELD: tl.constexpr, ROWS: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    """Run and place in it of a tile, when all runs of more than one row are cut into tiles of ROWS
    one after the other. `num_runs` where there are not so many. FIELD: where a run's rows are."""
    index = tl.arange(0, BLOCK)
    rows = tl.load(runs + index * WIDTH + FIELD, mask=index < num_runs, other=0).to(tl.int32)
    tiles = tl.where(rows == 1, 0, (rows + ROWS - 1) // ROWS)
    ends = tl.cumsum(tiles, 0)
    run = tl.sum((ends <= tile).to(tl.int32), 0)
    first = tl.sum(tl.where(index == run, ends - tiles, 0), 0)
    return tl.minimum(run, num_runs), tile - first


@triton.jit
def absorb(q, k, v, seen, best, weight, total, scale, MASKED: tl.constexpr):
    """The running softmax after one block: k [N, D], v [N, D], seen [M, N]."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if MASKED:
        scores = tl.where(seen, scores, -float("inf"))
    higher = tl.maximum(best, tl.max(scores, 1))
    origin = tl.where(higher == -float("inf"), 0.0, higher)
    weights = tl.exp2(scores - origin[:, None])
    fade = tl.exp2(best - origin)
    weight = weight * fade + tl.sum(weights, 1)
    total = total * fade[:, None]
    total = tl.dot(weights.to(v.dtype), v, total, input_precision="ieee")
    return higher, weight, total


@triton.jit
def begin_own(score, value, is_own):
    """The running softmax of a row that has seen its own key, or none yet."""
    best = tl.where(is_own, score, -float("inf"))
    weight = tl.where(is_own, 1.0, 0.0) + tl.zeros(score.shape, tl.float32)
    return best, weight, value * weight[:, None]


@triton.jit
def finished(weight, total):
    """The mean of values; 0 for a lane that saw nothing."""
    return total / tl.where(weight == 0.0, 1.0, weight)[:, None]


@triton.jit
def store_part(sums, weights, best, weight, total, place, used, SIZE: tl.constexpr):
    """One program's part of some lanes; `place` [M, 1] counts (row, head, split) through."""
    column = tl.arange(0, total.shape[1])[None, :]
    tl.store(sums + place * SIZE + column, total, mask=used & (column < SIZE))
    tl.store(weights + place * 2, best[:, None], mask=used)
    tl.store(weights + place * 2 + 1, weight[:, None], mask=used)


@triton.jit
def combine(
    sums, weights, out, runs, heads,
    WIDTH: tl.constexpr, FIRST: tl.constexpr, ENTERED: tl.constexpr, SPLITS: tl.constexpr,
    SIZE: tl.constexpr, BLOCK_D: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Puts the parts of a single row's head together. Fields of a run: its first q row is at FIRST,
    how many there are behind it, how many rows it has at ENTERED."""
    run, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    this = runs + run * WIDTH
    await_previous(OVERLAPS)
    if (tl.load(this + ENTERED) == 1) & (tl.load(this + FIRST + 1) == 1):
        row = tl.load(this + FIRST)
        split = tl.arange(0, SPLITS)
        place = (run * heads + head) * SPLITS + split
        best, weight = tl.load(weights + place * 2), tl.load(weights + place * 2 + 1)
        factor = tl.exp2(best - tl.max(best, 0))
        column = tl.arange(0, BLOCK_D)
        inside = (split[:, None] >= 0) & (column < SIZE)[None, :]
        parts = tl.load(sums + place[:, None] * SIZE + column[None, :], mask=inside, other=0.0)
        total = tl.sum(parts * factor[:, None], 0) / tl.sum(weight * factor, 0)
        to = out + (row * heads + head) * SIZE + column
        tl.store(to, total.to(out.dtype.element_ty), mask=column < SIZE)
