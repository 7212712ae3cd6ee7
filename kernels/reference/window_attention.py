"""Attention of window layers: the last W positions, kept in one ring per slot. Specification.

    ring of C rows:  position x is in row x % C, tags say which position a row holds (-1 none)

      earlier positions        rows of this call
      [ring ............][k_rows ...........]          the last min(k_rows, C) are committed
                               [q rows .....]          the last q_rows of them attend

Attention reads the ring and the call's rows, and only then are rows committed (rule S4): a chunk
longer than the ring would otherwise destroy the history that its first rows need.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_tile import attend_run


def window_attention(  # noqa: PLR0913 - one tensor of the pool each
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ring_k: Tensor,
    ring_v: Tensor,
    tags: Tensor,
    runs: Tensor,
    window: int,
    scale: float,
) -> Tensor:
    """The row at position p attends keys max(floor, p - window + 1) .. p of its request.

    Shapes: q `[Tq, H, D]`; k, v `[T, K, D]`, rows of all three may be strided; rings
    `[S, C, K, D]` of the pool's dtype, to which the rows of k and v are rounded before they are
    attended; tags `[S, C]` int64; runs `[B, 7]` int64 of (slot, first k row, k rows, first q row,
    q rows, position of the first k row, floor), one run a slot. The q rows are the last of the k
    rows; with none of them keys and values are only committed. Query head h reads kv head
    h // (H // K). Returns `[Tq, H, D]`; rows of no run are zero.
    Writes: ring_k, ring_v, tags.
    Raises `RuntimeError` when the ring does not hold a position that a row sees (rule S5),
    `ValueError` for a run outside its tensors. Nothing has been written then.
    """
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    pool = (k.to(ring_k.dtype), v.to(ring_v.dtype))
    checked = [_check(run, q, k, tags, window) for run in runs.tolist()]
    for slot, k_start, k_rows, q_start, q_rows, position, floor in checked:
        if q_rows == 0:
            continue

        def load(
            lo: int, hi: int, slot: int = slot, shift: int = k_start - position, new: int = position
        ) -> tuple[Tensor, Tensor]:
            old = _positions(lo, min(hi, new)) % ring_k.shape[1]
            rows = slice(max(lo, new) + shift, max(hi, new) + shift)
            return (
                torch.cat((ring_k[slot, old], pool[0][rows])),
                torch.cat((ring_v[slot, old], pool[1][rows])),
            )

        first = position + k_rows - q_rows
        q_run = q[q_start : q_start + q_rows]
        out[q_start : q_start + q_rows] = attend_run(q_run, first, (window, floor), scale, load)
    for slot, k_start, k_rows, _, _, position, _ in checked:
        dropped = max(0, k_rows - ring_k.shape[1])
        x = _positions(position + dropped, position + k_rows)
        rows = slice(k_start + dropped, k_start + k_rows)
        ring_k[slot, x % ring_k.shape[1]] = pool[0][rows]
        ring_v[slot, x % ring_k.shape[1]] = pool[1][rows]
        tags[slot, x % ring_k.shape[1]] = x
    return out


def _check(run: list[int], q: Tensor, k: Tensor, tags: Tensor, window: int) -> list[int]:
    """The run, when it lies inside its tensors and the ring holds the history that it sees."""
    slot, k_start, k_rows, q_start, q_rows, position, floor = run
    first = position + k_rows - q_rows
    inside = k_start + k_rows <= k.shape[0] and q_start + q_rows <= q.shape[0]
    if min(run) < 0 or slot >= tags.shape[0] or not inside or q_rows > k_rows:
        raise ValueError(f"run {run} is outside its tensors")
    if q_rows == 0:
        return run
    if floor > first:
        raise ValueError(f"run {run}: the row at {first} is below its floor")
    history = _positions(max(floor, first - window + 1), position)
    held = tags[slot, history % tags.shape[1]]
    if not torch.equal(held, history):
        x = int(history[held != history][0])
        raise RuntimeError(f"slot {slot} has no window row of position {x}")
    return run


def _positions(lo: int, hi: int) -> Tensor:
    return torch.arange(lo, max(lo, hi))
