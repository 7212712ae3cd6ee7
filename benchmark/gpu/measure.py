"""Times on the device, and the two ceilings that they are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

COPY_BYTES = 4 << 30
MATRIX = 8192
CACHE_BYTES = 256 << 20  # written between calls, several times the second-level cache


def milliseconds(run: Callable[[], object], repeats: int = 30, *, is_cold: bool = True) -> float:
    """Median device time of a call. `is_cold`: caches hold nothing of the last one."""
    spoiler = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        if is_cold:
            spoiler.zero_()
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        run()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended))
    return statistics.median(times)


def in_graph(run: Callable[[], object], calls: int = 20) -> float:
    """Milliseconds of one of `calls` in a row, replayed as a graph: no launch is waited for."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return milliseconds(graph.replay, 10, is_cold=False) / calls


def ceilings() -> dict[str, float]:
    """Bytes per second of a copy, read and written; products per second of bf16 matrices."""
    source = torch.randint(-100, 100, (COPY_BYTES,), dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    copy_ms = milliseconds(lambda: target.copy_(source), 10)
    a, b = (torch.randn(MATRIX, MATRIX, device="cuda").bfloat16() for _ in range(2))
    product_ms = milliseconds(lambda: a @ b, 10)
    return {
        "copy_bytes_per_s": 2 * COPY_BYTES / copy_ms * 1e3,
        "bf16_flop_per_s": 2 * MATRIX**3 / product_ms * 1e3,
    }
