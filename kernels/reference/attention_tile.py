"""Attention of some rows of one request to keys at known positions, in tiles of fixed shape.

A row's result must not depend on what runs beside it, bit for bit: not on where its chunk began,
not on other requests, not on floors that it does not feel. Matrix products of different shapes sum
in different orders, so every product here has a shape that follows from absolute positions alone:

    rows     |0 ....... 15|16 ...... 31|32 ...     tiles of TILE_ROWS, aligned; missing rows are 0
    keys     |0 ... 31|32 ... 63|64 ...            from the tile's lowest key, if no floor were
                                                   there, rounded down, to the tile's end; missing
                                                   and unseen keys are 0 and get the weight 0
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TILE_ROWS = 16
KEY_ALIGN = 32  # a multiple of TILE_ROWS
EVERYTHING = 1 << 60  # the window of a global layer

Load = Callable[[int, int], tuple[Tensor, Tensor]]


def attend_run(q: Tensor, position: int, span: tuple[int, int], scale: float, load: Load) -> Tensor:
    """Attention of rows at `position`, `position + 1`, ...: `[R, H, D]` like q.

    `span` is (window, floor): the row at p attends keys max(floor, p - window + 1) .. p.
    `load(lo, hi)` returns keys and values `[hi - lo, K, D]` of positions lo <= x < hi, rounded to
    the pool's dtype; it is asked for seen positions only.
    """
    out = torch.empty_like(q)
    end = position + q.shape[0]
    if end == position:
        return out
    for start in range(position - position % TILE_ROWS, end, TILE_ROWS):
        lo, hi = max(start, position), min(start + TILE_ROWS, end)
        rows = q.new_zeros(TILE_ROWS, *q.shape[1:])
        rows[lo - start : hi - start] = q[lo - position : hi - position]
        result = _attend_tile(rows, start, (lo, hi), span, scale, load)
        out[lo - position : hi - position] = result[lo - start : hi - start]
    return out


def _attend_tile(
    q: Tensor, start: int, rows: tuple[int, int], span: tuple[int, int], scale: float, load: Load
) -> Tensor:
    """One tile whose first row is at `start`; of it, rows lo <= position < hi are real."""
    window, floor = span
    first_key = max(0, start - window + 1) // KEY_ALIGN * KEY_ALIGN
    num_keys = -(-(start + TILE_ROWS - first_key) // KEY_ALIGN) * KEY_ALIGN
    k, v = _load_padded(load, max(floor, rows[0] - window + 1), rows[1], (first_key, num_keys), q)

    key = first_key + torch.arange(num_keys)
    row = (start + torch.arange(TILE_ROWS))[:, None]
    seen = (key <= row) & (key > row - window) & (key >= floor)

    group = q.shape[1] // k.shape[1]  # query head h reads kv head h // group
    k, v = (x.repeat_interleave(group, dim=1).transpose(0, 1).contiguous() for x in (k, v))
    scores = torch.bmm(q.transpose(0, 1).contiguous() * scale, k.transpose(1, 2))
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    # a padding row below the floor sees nothing: 0 / 0, and nobody reads it
    return torch.bmm(weights, v).transpose(0, 1)


def _load_padded(
    load: Load, lo: int, hi: int, keys: tuple[int, int], q: Tensor
) -> tuple[Tensor, Tensor]:
    """Keys and values of the tile as q's dtype; zero where no row of the tile sees them."""
    lo = max(lo, 0)
    k, v = load(lo, hi)
    first_key, num_keys = keys
    padded = q.new_zeros(2, num_keys, *k.shape[1:])
    padded[0, lo - first_key : hi - first_key] = k.to(q.dtype)
    padded[1, lo - first_key : hi - first_key] = v.to(q.dtype)
    return padded[0], padded[1]
