"""Experts at decode and prefill sizes: `python benchmark/kernels/bench_moe.py`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.ops import Experts
from treadle.kernels.reference import moe, packed_linear

WIDTH, INNER, COUNT, CHOSEN = 256, 128, 16, 2


def matrix(rows: int, columns: int) -> packed_linear.PackedMatrix:
    codes = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    scales = torch.full((rows, columns // 32), 122, dtype=torch.uint8)
    return packed_linear.pack_fp4(codes, scales)


EXPERTS = Experts(0, matrix(COUNT * 2 * INNER, WIDTH), matrix(COUNT * WIDTH, INNER), 10.0, True)


def cases(rows: int) -> list[Case]:
    x, logits, bias = activations(rows, WIDTH), torch.randn(rows, COUNT), torch.zeros(COUNT)
    chosen, shares = moe.route(logits, bias, CHOSEN, 1.5)
    return [
        Case(
            f"route M={rows}",
            lambda: ops.route(logits, bias, CHOSEN, 1.5),
            lambda: moe.route(logits, bias, CHOSEN, 1.5),
            logits.nbytes,
        ),
        Case(
            f"moe_experts M={rows}",
            lambda: ops.moe_experts(x, chosen, shares, EXPERTS),
            lambda: moe.moe_experts(x, chosen, shares, EXPERTS),
            EXPERTS.gate_up.data.nbytes + EXPERTS.down.data.nbytes,
        ),
    ]


if __name__ == "__main__":
    set_threads("mixture of experts")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
