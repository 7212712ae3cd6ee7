"""How the operator benches time a call and print a line. Best of several batches: on a shared
machine the best is what the code can do, the median what it got."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

BATCH_S = 0.002  # shorter than a scheduler slice, so that some batch runs undisturbed
NUM_BATCHES = 40


@dataclass(frozen=True, slots=True)
class Case:
    """One operator at one size: calls of both backends, and the bytes a call must move."""

    name: str
    cpu: Callable[[], object]
    reference: Callable[[], object]
    num_bytes: int


def seconds(run: Callable[[], object], num_batches: int = NUM_BATCHES) -> tuple[float, float]:
    """Best and median time of a call; short calls are repeated within a batch."""
    run()
    start = time.perf_counter()
    run()
    count = max(1, int(BATCH_S / max(time.perf_counter() - start, 1e-7)))
    times = []
    for _ in range(num_batches):
        start = time.perf_counter()
        for _ in range(count):
            run()
        times.append((time.perf_counter() - start) / count)
    times.sort()
    return times[0], times[len(times) // 2]


def set_threads(description: str) -> None:
    """Read `--threads` from the command line and tell torch."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    torch.set_num_threads(parser.parse_args().threads)


def print_cases(cases: list[Case]) -> None:
    """A line per case: microseconds of both backends and GB/s of the C++ one."""
    for case in cases:
        best, median = seconds(case.cpu)
        reference, _ = seconds(case.reference, 9)
        print(
            f"{case.name:28} best {best * 1e6:9.2f} us median {median * 1e6:9.2f} us "
            f"{case.num_bytes / best / 1e9:6.1f} GB/s  reference {reference * 1e6:9.2f} us"
        )
