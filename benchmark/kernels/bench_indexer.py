"""Sparse selection: `python benchmark/kernels/bench_indexer.py`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.reference import indexer

HEADS, SIZE, CHOSEN, ENTRIES, BLOCK, BLOCKS = 4, 32, 32, 1024, 4, 16


def cases(rows: int) -> list[Case]:
    q = activations(rows, HEADS * SIZE).view(rows, HEADS, SIZE)
    weight, keys = activations(rows, HEADS), activations(ENTRIES, SIZE)
    visible = torch.full((rows,), ENTRIES)
    scores = indexer.index_scores(q, weight, keys, visible)
    return [
        Case(
            f"index_scores M={rows}",
            lambda: ops.index_scores(q, weight, keys, visible),
            lambda: indexer.index_scores(q, weight, keys, visible),
            keys.nbytes,
        ),
        Case(
            f"select_entries M={rows}",
            lambda: ops.select_entries(scores, CHOSEN),
            lambda: indexer.select_entries(scores, CHOSEN),
            scores.nbytes,
        ),
        Case(
            f"candidate_blocks M={rows}",
            lambda: ops.candidate_blocks(scores, visible, BLOCK, BLOCKS),
            lambda: indexer.candidate_blocks(scores, visible, BLOCK, BLOCKS),
            scores.nbytes,
        ),
    ]


if __name__ == "__main__":
    set_threads("indexer")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
