"""Products with matrices that stay packed: `python benchmark/kernels/bench_packed_linear.py`.

The reference unpacks the matrix at each call. Bytes are those of the packed matrix.
"""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations, weights
from treadle.kernels.reference import block_float, packed_linear

FEATURES, INPUTS = 1024, 512


def matrices() -> list[packed_linear.PackedMatrix]:
    dense = weights(FEATURES, INPUTS)
    fp8 = dense.to(torch.float8_e4m3fn)
    scales = torch.full((FEATURES // 32, INPUTS // 32), 127, dtype=torch.uint8)
    codes, fp4_scales = block_float.mxfp4_quantize(dense)
    return [
        packed_linear.pack_float32(dense),
        packed_linear.pack_fp8(fp8, scales),
        packed_linear.pack_fp4(block_float.pack_nibbles(codes), fp4_scales),
    ]


def case(rows: int, w: packed_linear.PackedMatrix) -> Case:
    x = activations(rows, INPUTS)
    return Case(
        f"linear {w.kind.name} M={rows}",
        lambda: ops.linear_packed(x, w, is_rounding=True),
        lambda: packed_linear.linear_packed(x, w, is_rounding=True),
        w.data.nbytes,
    )


if __name__ == "__main__":
    set_threads("packed matrices")
    for num_rows in (1, 8, 512):
        print_cases([case(num_rows, w) for w in matrices()])
