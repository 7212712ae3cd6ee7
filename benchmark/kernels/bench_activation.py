"""Gated activations: `python benchmark/kernels/bench_activation.py [--threads 2]`."""

from __future__ import annotations

from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.reference import activation

SIZE = 2048


def cases(rows: int) -> list[Case]:
    gate_up = activations(rows, 2 * SIZE)
    num_bytes = rows * 3 * SIZE * 4
    return [
        Case(
            f"gelu_tanh_mul M={rows}",
            lambda: ops.gelu_tanh_mul(gate_up),
            lambda: activation.gelu_tanh_mul(gate_up),
            num_bytes,
        ),
        Case(
            f"silu_mul M={rows}",
            lambda: ops.silu_mul(gate_up),
            lambda: activation.silu_mul(gate_up),
            num_bytes,
        ),
    ]


if __name__ == "__main__":
    set_threads("gated activations")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
