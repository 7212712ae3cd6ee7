"""Hyper-connections at decode and prefill sizes: `python benchmark/kernels/bench_hyper.py`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.ops import HyperMatrix
from treadle.kernels.reference import hyper

WIDTH = 256
MATRIX = HyperMatrix(
    activations(24, 4 * WIDTH) / 100, torch.zeros(24), torch.ones(3), 20, 1e-20, 1e-6
)


def cases(rows: int) -> list[Case]:
    x = activations(rows, 4 * WIDTH).view(rows, 4, WIDTH)
    pre, post, comb = hyper.hyper_weights(x, MATRIX)
    y = hyper.hyper_collapse(x, pre)
    stream_bytes = rows * WIDTH * 4
    return [
        Case(
            f"hyper_weights M={rows}",
            lambda: ops.hyper_weights(x, MATRIX),
            lambda: hyper.hyper_weights(x, MATRIX),
            4 * stream_bytes,
        ),
        Case(
            f"hyper_collapse M={rows}",
            lambda: ops.hyper_collapse(x, pre),
            lambda: hyper.hyper_collapse(x, pre),
            5 * stream_bytes,
        ),
        Case(
            f"hyper_expand M={rows}",
            lambda: ops.hyper_expand(y, post, comb, x),
            lambda: hyper.hyper_expand(y, post, comb, x),
            9 * stream_bytes,
        ),
    ]


if __name__ == "__main__":
    set_threads("hyper-connections")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
