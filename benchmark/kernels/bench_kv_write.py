"""Writes into pages: `python benchmark/kernels/bench_kv_write.py [--threads 2]`."""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels.attention_inputs import Shape, make_stream
from treadle.kernels.ops import kv_write
from treadle.kernels.reference import kv_write as reference

SHAPE = Shape(heads=9, kv_heads=3, head_dim=64)
NUM_PAGES, PAGE_SIZE = 512, 16


def case(rows: int, dtype: torch.dtype) -> Case:
    stream = make_stream(SHAPE, rows, seed=0)
    size = (NUM_PAGES, PAGE_SIZE, SHAPE.kv_heads, SHAPE.head_dim)
    pools = torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype)
    dst = torch.randperm(NUM_PAGES * PAGE_SIZE)[:rows]
    floats = 2 * rows * SHAPE.kv_heads * SHAPE.head_dim
    return Case(
        f"kv_write M={rows} {str(dtype)[6:]}",
        lambda: kv_write(stream.k, stream.v, *pools, dst),
        lambda: reference.kv_write(stream.k, stream.v, *pools, dst),
        floats * (4 + dtype.itemsize),
    )


if __name__ == "__main__":
    set_threads("writes into pages")
    print_cases([case(m, d) for m in (1, 8, 512) for d in (torch.float32, torch.bfloat16)])
