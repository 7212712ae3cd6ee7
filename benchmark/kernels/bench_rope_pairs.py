"""Rotary pairs at decode and prefill sizes: `python benchmark/kernels/bench_rope_pairs.py`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.reference import rope_pairs

HEADS, SIZE, ROTARY = 8, 64, 16


def case(rows: int) -> Case:
    x = activations(rows, HEADS * SIZE).view(rows, HEADS, SIZE)
    positions = torch.arange(rows)
    frequencies = rope_pairs.yarn_frequencies(ROTARY, 10000.0, 1.0, 32, 1, 1024)
    return Case(
        f"rope_pairs M={rows}",
        lambda: ops.rope_pairs(x, positions, frequencies),
        lambda: rope_pairs.rope_pairs(x, positions, frequencies),
        2 * x.nbytes,
    )


if __name__ == "__main__":
    set_threads("rotary pairs")
    print_cases([case(num_rows) for num_rows in (1, 8, 512)])
