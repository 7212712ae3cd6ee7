"""Norm and rotation of q and k in a fused projection's result.

python benchmark/kernels/bench_rope.py [--threads 2]
"""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.ops import QkNorm, rope_inv_freq, rope_table
from treadle.kernels.reference import rope

# weights of one keep repeated calls in place from running into subnormal numbers
NORM = QkNorm(torch.ones(256), torch.ones(256), 1e-6)
TABLE = rope_table(rope_inv_freq(256, 1e4), 1024)


def case(rows: int) -> Case:
    qkv = activations(rows, 1536)
    q, k = qkv[:, :1024].view(rows, 4, 256), qkv[:, 1024:1280].view(rows, 1, 256)
    positions = torch.arange(rows)
    return Case(
        f"qk_norm_rope M={rows}",
        lambda: ops.qk_norm_rope(q, k, NORM, positions, TABLE),
        lambda: rope.qk_norm_rope(q, k, NORM, positions, TABLE),
        rows * (2 * 1280 + 256) * 4,
    )


if __name__ == "__main__":
    set_threads("norm and rope")
    print_cases([case(num_rows) for num_rows in (1, 8, 512)])
