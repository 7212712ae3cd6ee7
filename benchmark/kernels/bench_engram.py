"""Gates of n-gram memory and of pairs: `python benchmark/kernels/bench_engram.py`."""

from __future__ import annotations

from timing import Case, print_cases, set_threads

from treadle.kernels import ops
from treadle.kernels.inputs import activations
from treadle.kernels.reference import compressor, engram

WIDTH, STREAMS, HEAD = 256, 4, 64


def cases(rows: int) -> list[Case]:
    x = activations(rows, STREAMS * WIDTH).view(rows, STREAMS, WIDTH)
    fused = activations(rows, (STREAMS + 1) * WIDTH, seed=1).view(rows, STREAMS + 1, WIDTH)
    parts = (x, fused[:, :-1], fused[:, -1], activations(STREAMS, WIDTH, seed=2), 1e-6)
    even, even_gate, odd, odd_gate = (activations(rows, HEAD, seed=seed) for seed in range(4))
    pair = (even, even_gate, odd, odd_gate)
    return [
        Case(
            f"engram_gate M={rows}",
            lambda: ops.engram_gate(*parts),
            lambda: engram.engram_gate(*parts),
            2 * x.nbytes + fused.nbytes,
        ),
        Case(
            f"pool_pairs M={rows}",
            lambda: ops.pool_pairs(*pair),
            lambda: compressor.pool_pairs(*pair),
            5 * even.nbytes,
        ),
    ]


if __name__ == "__main__":
    set_threads("gates")
    for num_rows in (1, 8, 512):
        print_cases(cases(num_rows))
