"""Int8 products of a 270M model's layers and tied head, against torch's dense products.

    python benchmark/kernels/bench_linear.py [--threads 2] [--repeat 20] [--rows 1 8 512]

Prints, for each number of rows, milliseconds for all layers (best and median), rows/s, GMAC/s and,
for one row, the bandwidth at which weights are read. Distinct weights per layer, so that no cache
holds them between passes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from treadle.kernels.cpu.lib import isa
from treadle.kernels.inputs import HEAD_SHAPE, LAYER_SHAPES, NUM_LAYERS, activations, weights
from treadle.kernels.ops import Q8Weight, linear_q8, pack_q8

HEAD_PARTS = 16  # the head is timed in parts, for the same reason as passes() is
LAYER_MACS = NUM_LAYERS * sum(n * k for n, k in LAYER_SHAPES)


def passes(calls: list[Callable[[], object]], repeat: int) -> tuple[float, float]:
    """Time of one pass over all calls: the sum of their best times, and the median pass.

    On a busy machine no whole pass runs undisturbed, but each call does in some pass.
    """
    best = [float("inf")] * len(calls)
    totals = []
    for _ in range(repeat + 1):
        total = 0.0
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            took = time.perf_counter() - start
            best[i] = min(best[i], took)
            total += took
        totals.append(total)
    return sum(best), sorted(totals)[len(totals) // 2]


def product(
    x: torch.Tensor, w: Q8Weight, out: torch.Tensor, start: int = 0, end: int | None = None
) -> Callable[[], object]:
    return lambda: linear_q8(x, w, None, start, end, out)


def dense_product(x: torch.Tensor, w: torch.Tensor) -> Callable[[], object]:
    return lambda: F.linear(x, w)


def num_bytes(w: Q8Weight) -> int:
    return w.data.nbytes + w.scales.nbytes


def report(label: str, rows: int, macs: int, took: tuple[float, float]) -> str:
    best, median = took
    speed = f"{rows / best:8.0f} rows/s {rows * macs / best / 1e9:7.1f} GMAC/s"
    return f"{label:24} M={rows:<4} best {best * 1e3:8.2f} ms median {median * 1e3:8.2f} ms {speed}"


def bench_layers(row_counts: list[int], repeat: int) -> None:
    dense = [[weights(*s, seed=i) for s in LAYER_SHAPES] for i in range(NUM_LAYERS)]
    packed = [[pack_q8(w) for w in layer] for layer in dense]
    half = [[w.bfloat16() for w in layer] for layer in dense]
    size = sum(num_bytes(w) for layer in packed for w in layer)
    for rows in row_counts:
        xs = [activations(rows, k) for _, k in LAYER_SHAPES]
        halves = [x.bfloat16() for x in xs]
        outs = [torch.empty(rows, n) for n, _ in LAYER_SHAPES]

        calls = [
            product(x, w, out)
            for layer in packed
            for x, w, out in zip(xs, layer, outs, strict=True)
        ]
        took = passes(calls, repeat)
        extra = f" {size / took[0] / 1e9:.1f} GB/s" if rows == 1 else ""
        print(report(f"layers int8 {isa()}", rows, LAYER_MACS, took) + extra)
        for label, inputs, layers in (("float32", xs, dense), ("bfloat16", halves, half)):
            calls = [
                dense_product(x, w) for layer in layers for x, w in zip(inputs, layer, strict=True)
            ]
            took = passes(calls, min(repeat, 5))
            print(report(f"layers torch {label}", rows, LAYER_MACS, took))


def bench_head(repeat: int) -> None:
    dense = weights(*HEAD_SHAPE)
    start = time.perf_counter()
    head = pack_q8(dense)
    print(f"packing the head: {time.perf_counter() - start:.2f} s")
    del dense
    for rows in (1, 4, 8):
        x, out = activations(rows, HEAD_SHAPE[1]), torch.empty(rows, HEAD_SHAPE[0])
        part = HEAD_SHAPE[0] // HEAD_PARTS
        calls = [
            product(x, head, out[:, i : i + part], i, i + part)
            for i in range(0, HEAD_SHAPE[0], part)
        ]
        took = passes(calls, repeat)
        bandwidth = f" {num_bytes(head) / took[0] / 1e9:.1f} GB/s"
        print(report("head int8", rows, HEAD_SHAPE[0] * HEAD_SHAPE[1], took) + bandwidth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8, 64, 512])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bench_head(args.repeat)
    bench_layers(args.rows, args.repeat)


if __name__ == "__main__":
    main()
