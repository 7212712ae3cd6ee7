"""Sparse selection: which compressed entries a row attends. Specification.

A row scores every entry it can see and keeps the best. Ties go to the lower entry number, chosen
entries are listed in ascending order, unused places hold -1. Source: deepseek-v41.md 3.5, 3.6.
"""

from __future__ import annotations

import torch
from torch import Tensor

NOT_VISIBLE = float("-inf")


def index_scores(q: Tensor, weight: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
    """`sum_h weight[h] * relu(q[h] . key[j])`, `-inf` for entries from `visible` on.

    Shapes: q `[T, H, D]`, weight `[T, H]`, keys `[E, D]`, visible `[T]` int64; returns `[T, E]`.
    """
    scores = torch.zeros(q.shape[0], keys.shape[0], dtype=q.dtype)
    for head in range(q.shape[1]):
        scores += torch.relu(q[:, head] @ keys.T) * weight[:, head, None]
    hidden = torch.arange(keys.shape[0]) >= visible[:, None]
    return scores.masked_fill_(hidden, NOT_VISIBLE)


def select_entries(scores: Tensor, count: int) -> Tensor:
    """The `count` best entries of each row, ascending, -1 where fewer are visible.

    Shapes: scores `[T, E]`; returns `[T, count]` int64.
    """
    rows, entries = scores.shape
    order = torch.sort(scores + 0.0, dim=1, descending=True, stable=True)  # + 0.0: -0.0 is 0.0
    chosen = order.indices[:, :count]
    chosen = torch.where(order.values[:, :count] == NOT_VISIBLE, entries, chosen)
    chosen = torch.sort(chosen, dim=1).values
    out = torch.full((rows, count), -1, dtype=torch.int64)
    out[:, : chosen.shape[1]] = torch.where(chosen == entries, -1, chosen)
    return out


def candidate_blocks(scores: Tensor, visible: Tensor, block: int, count: int) -> Tensor:
    """Which entries lie in the `count` best blocks of `block` entries: a block counts as its best
    visible entry, and the newest visible entry's block is always kept.

    Shapes: scores `[T, E]`, visible `[T]`; returns bool `[T, E]`.
    """
    rows, entries = scores.shape
    num_blocks = -(-entries // block)
    padded = torch.full((rows, num_blocks * block), NOT_VISIBLE, dtype=scores.dtype)
    padded[:, :entries] = scores
    best = padded.view(rows, num_blocks, block).amax(2)
    seen = torch.nonzero(visible > 0)[:, 0]
    best[seen, (visible[seen] - 1) // block] = torch.inf
    kept = torch.zeros(rows, num_blocks + 1, dtype=torch.bool)
    kept.scatter_(1, select_entries(best, min(count, num_blocks)) % (num_blocks + 1), True)
    return kept[:, :num_blocks].repeat_interleave(block, 1)[:, :entries]
