"""A decode row through norm, rotation, write and attention, at several contexts:

python benchmark/kernels/bench_rotated_attention.py [--threads 2]
"""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.attention_inputs import Shape, make_pages, make_stream
from treadle.kernels.ops import PagedKeys, QkNorm, Rotation
from treadle.kernels.reference import rotated_attention as reference

SHAPE, PAGE = Shape(4, 1, 256), 16


def case(context: int) -> Case:
    stream = make_stream(SHAPE, 1, seed=0)
    pages = make_pages(SHAPE, [context], PAGE, torch.float32)
    for pool in (pages.k, pages.v):
        pool.normal_()
    last = context - 1
    dst = pages.table[1, last // PAGE].long().reshape(1) * PAGE + last % PAGE
    keys = PagedKeys(pages.k, pages.v, dst, pages.table, torch.tensor([[1, 0, 1, last]]))
    ones = torch.ones(SHAPE.head_dim)
    table = ops.rope_table(ops.rope_inv_freq(SHAPE.head_dim, 1e6), context)
    rotation = Rotation(torch.tensor([last]), table, QkNorm(ones, ones, 1e-6))
    q, k, v, scale = stream.q, stream.k, stream.v, SHAPE.scale
    return Case(
        f"rotated_paged_attention {context}",
        lambda: ops.rotated_paged_attention(q, k, v, rotation, keys, scale),
        lambda: reference.rotated_paged_attention(q, k, v, rotation, keys, scale),
        context * SHAPE.kv_heads * SHAPE.head_dim * 8,
    )


if __name__ == "__main__":
    set_threads("attention of rows as the projection makes them")
    print_cases([case(context) for context in (128, 1024, 4096)])
