"""CUDA graphs of decode steps: one for each of some batch sizes, captured before the first request.

A graph holds the step from ids to logits for exactly its size; a smaller step is padded with rows
of slot 0. Inputs lie at fixed addresses and are overwritten by one copy before each replay. All
graphs share one pool of memory: logits of a replay are there until the next one, and the sampler
runs between. Steps with prompt rows are not captured: they run as they are.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..log import event
from .device_batch import FIELDS, DecodeRows, DeviceSlots, decode_batch
from .engine import Engine
from .transfer import upload

log = logging.getLogger(__name__)

WARM_UP_RUNS = 2  # compile kernels and let libraries choose theirs, outside of the capture

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Captured:
    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    logits: Tensor


@dataclass(frozen=True, slots=True)
class DecodeGraphs:
    captured: dict[int, Captured]

    @property
    def sizes(self) -> list[int]:
        return sorted(self.captured)

    def run(self, rows: DecodeRows) -> Tensor | None:
        """Logits [n, V] of the step, valid until the next call; None when it is too large."""
        sizes = self.sizes
        at = bisect_left(sizes, rows.count)
        if at == len(sizes):
            return None
        step = self.captured[sizes[at]]
        upload(list(rows.padded(sizes[at])), step.inputs.device, into=step.inputs)
        step.graph.replay()
        return step.logits[: rows.count]


def graph_sizes(largest: int) -> list[int]:
    """Batch sizes up to `largest`: close where padding costs much, wide apart above."""
    steps = [1, 2, 4, *range(8, 65, 8), *range(80, 257, 16), *range(288, largest + 1, 32)]
    return sorted({x for x in steps if x < largest} | {largest}) if largest > 0 else []


def capture(
    engine: Engine, slots: DeviceSlots, num_layers: int, largest: int, progress: Progress
) -> DecodeGraphs:
    """Graphs for steps of up to `largest` requests. Writes slot 0, which is nobody's."""
    sizes = graph_sizes(largest)
    pool = torch.cuda.graph_pool_handle()
    captured: dict[int, Captured] = {}
    for done, size in enumerate(reversed(sizes), 1):  # the largest first: the others fit its memory
        captured[size] = _capture(engine, slots, num_layers, size, pool)
        progress(done, len(sizes), f"graph of {size} rows")
    log.info(event("graphs", {"sizes": len(sizes), "largest": largest}))
    return DecodeGraphs(captured)


def _capture(
    engine: Engine, slots: DeviceSlots, num_layers: int, size: int, pool: tuple[int, int]
) -> Captured:
    device = slots.page_table.device
    inputs = torch.zeros(size * FIELDS, dtype=torch.int64, device=device)
    empty = np.empty(0, dtype=np.int64)
    none = DecodeRows((empty,) * 4 + (empty.reshape(0, 4), empty.reshape(0, 7)))
    parts = upload(list(none.padded(size)), device, into=inputs)

    def step() -> Tensor:
        return engine.head(engine.forward(decode_batch(parts, num_layers, slots)))

    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_RUNS):
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):  # type: ignore[arg-type]
        logits = step()
    return Captured(graph, inputs, logits)
