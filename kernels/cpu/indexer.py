"""Sparse selection in C++ for float32; anything else runs `reference/indexer.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import indexer as reference
from .lib import ADDRESS, INT, function

_index_scores = function(
    "treadle_index_scores", (ADDRESS, ADDRESS, INT, INT, INT, ADDRESS, INT, ADDRESS, ADDRESS, INT)
)
_select_entries = function("treadle_select_entries", (ADDRESS, INT, INT, INT, ADDRESS, INT))
_candidate_blocks = function(
    "treadle_candidate_blocks", (ADDRESS, ADDRESS, INT, INT, INT, INT, ADDRESS, INT)
)


def index_scores(q: Tensor, weight: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
    """See `reference.indexer.index_scores`. Raises `ValueError` when sizes disagree."""
    rows, heads, size = q.shape
    if size % 2 or any(x.dtype is not torch.float32 for x in (q, weight, keys)):
        return reference.index_scores(q, weight, keys, visible)
    if weight.shape != (rows, heads) or keys.shape[1] != size or visible.shape != (rows,):
        raise ValueError(f"index_scores of q {tuple(q.shape)}, keys {tuple(keys.shape)}")
    q, weight, keys, visible = (x.contiguous() for x in (q, weight, keys, visible))
    out = torch.empty(rows, len(keys))
    _index_scores(
        q.data_ptr(),
        weight.data_ptr(),
        rows,
        heads,
        size,
        keys.data_ptr(),
        len(keys),
        visible.data_ptr(),
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def select_entries(scores: Tensor, count: int) -> Tensor:
    """See `reference.indexer.select_entries`."""
    if scores.dtype is not torch.float32:
        return reference.select_entries(scores, count)
    scores = scores.contiguous()
    rows, entries = scores.shape
    out = torch.empty(rows, count, dtype=torch.int64)
    threads = torch.get_num_threads()
    _select_entries(scores.data_ptr(), rows, entries, count, out.data_ptr(), threads)
    return out


def candidate_blocks(scores: Tensor, visible: Tensor, block: int, count: int) -> Tensor:
    """See `reference.indexer.candidate_blocks`."""
    if scores.dtype is not torch.float32:
        return reference.candidate_blocks(scores, visible, block, count)
    scores, visible = scores.contiguous(), visible.contiguous()
    rows, entries = scores.shape
    out = torch.empty(rows, entries, dtype=torch.bool)
    _candidate_blocks(
        scores.data_ptr(),
        visible.data_ptr(),
        rows,
        entries,
        block,
        count,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out
