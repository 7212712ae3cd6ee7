"""Product and gate of an MLP: `python benchmark/kernels/bench_gated_linear.py [--threads 2]`."""

from __future__ import annotations

from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations, weights
from treadle.kernels.reference import gated_linear

SIZE, FEATURES = 640, 4096


def cases(rows: int) -> list[Case]:
    x, weight = activations(rows, SIZE), weights(FEATURES, SIZE)
    return [
        Case(
            f"gelu_tanh_linear M={rows}",
            lambda: ops.gelu_tanh_linear(x, weight),
            lambda: gated_linear.gelu_tanh_linear(x, weight),
            weight.nbytes + x.nbytes + rows * FEATURES * 2,
        ),
        Case(
            f"silu_linear M={rows}",
            lambda: ops.silu_linear(x, weight),
            lambda: gated_linear.silu_linear(x, weight),
            weight.nbytes + x.nbytes + rows * FEATURES * 2,
        ),
    ]


if __name__ == "__main__":
    set_threads("product and gate")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
