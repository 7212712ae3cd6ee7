"""RMS norms at decode and prefill sizes: `python benchmark/kernels/bench_norm.py [--threads 2]`.

One row shows what a call costs, many rows show bandwidth.
"""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.reference import norm

EPS, SIZE = 1e-6, 640


def cases(rows: int) -> list[Case]:
    x, residual, weight = activations(rows, SIZE), activations(rows, SIZE), torch.ones(SIZE)
    row_bytes = rows * SIZE * 4
    return [
        Case(
            f"rms_norm M={rows}",
            lambda: ops.rms_norm(x, weight, EPS),
            lambda: norm.rms_norm(x, weight, EPS),
            2 * row_bytes,
        ),
        Case(
            f"norm_add_rms_norm M={rows}",
            lambda: ops.norm_add_rms_norm(x, residual, weight, weight, EPS),
            lambda: norm.norm_add_rms_norm(x, residual, weight, weight, EPS),
            4 * row_bytes,
        ),
    ]


if __name__ == "__main__":
    set_threads("RMS norms")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
