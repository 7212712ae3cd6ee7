"""Packing of int8 weights and rows read back from them.

python benchmark/kernels/bench_quant.py [--threads 2]
"""

from __future__ import annotations

import torch
from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import weights
from treadle.kernels.reference import quant

SHAPE = (32768, 640)


def cases() -> list[Case]:
    weight = weights(*SHAPE)
    packed = quant.pack_q8(weight)
    ids = torch.arange(512) * 61
    return [
        Case(
            f"pack_q8 {SHAPE}",
            lambda: ops.pack_q8(weight),
            lambda: quant.pack_q8(weight),
            weight.nbytes + packed.data.nbytes + packed.scales.nbytes,
        ),
        Case(
            "q8_rows T=1",
            lambda: ops.q8_rows(packed, ids[:1], 25.0),
            lambda: quant.q8_rows(packed, ids[:1], 25.0),
            SHAPE[1] * 5,
        ),
        Case(
            "q8_rows T=512",
            lambda: ops.q8_rows(packed, ids, 25.0),
            lambda: quant.q8_rows(packed, ids, 25.0),
            512 * SHAPE[1] * 5,
        ),
    ]


if __name__ == "__main__":
    set_threads("int8 packing")
    print_cases(cases())
