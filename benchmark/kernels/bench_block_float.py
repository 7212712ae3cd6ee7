"""Rows of small floats, packed and read: `python benchmark/kernels/bench_block_float.py`."""

from __future__ import annotations

from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.ops import RowKind
from treadle.kernels.reference import block_float

SIZE = 512


def cases(rows: int, kind: RowKind) -> list[Case]:
    x = activations(rows, SIZE)
    packed = block_float.encode_rows(x, kind)
    moved = rows * (SIZE * 4 + kind.row_bytes(SIZE))
    return [
        Case(
            f"encode {kind.name} M={rows}",
            lambda: ops.encode_rows(x, kind),
            lambda: block_float.encode_rows(x, kind),
            moved,
        ),
        Case(
            f"decode {kind.name} M={rows}",
            lambda: ops.decode_rows(packed, kind, SIZE),
            lambda: block_float.decode_rows(packed, kind, SIZE),
            moved,
        ),
    ]


if __name__ == "__main__":
    set_threads("block-scaled rows")
    for row_kind in RowKind:
        for num_rows in (1, 512):
            print_cases(cases(num_rows, row_kind))
