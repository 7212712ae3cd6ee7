"""A model of random weights in this process, and plans for it without a scheduler."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from treadle.srt.checkpoint import load_model_config
from treadle.srt.config import (
    CacheSection,
    ModelSection,
    ParallelSection,
    SchedSection,
    ServerConfig,
)
from treadle.srt.host import read_host_facts
from treadle.srt.messages import PageUpdate, SamplingParams, SlotReset, StepPlan
from treadle.srt.resolve import resolve
from treadle.srt.worker.device_runner import DeviceRunner
from treadle.srt.worker.runner import Runner

MODELS = Path(__file__).parent / "models"
PAGE = 16


def load(name: str, *, running: int, kv_bytes: int, graphs: int, context: int) -> DeviceRunner:
    """`name`: a folder of `models/`."""
    path = MODELS / name
    facts = load_model_config(path)
    config = resolve(
        ServerConfig(
            ModelSection(path=str(path), load_format="dummy", context_len=context),
            CacheSection(memory_bytes=kv_bytes, warm_windows=0, page_size=PAGE),
            SchedSection(max_running=running),
            ParallelSection(device="cuda", graph_batch=graphs),
        ),
        facts,
        read_host_facts(),
    )
    base = Runner.load(config, facts, path, lambda done, total, label: None)
    return DeviceRunner.capture(base, config.parallel, lambda done, total, label: None)


@dataclass(slots=True, eq=False)
class Requests:
    """`count` greedy requests in slots 1 .. count; `length` is known of each."""

    runner: DeviceRunner
    count: int
    most: int  # tokens of a request
    length: int = 0
    step: int = 0
    _ids: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def admit(self) -> tuple[tuple[SlotReset, ...], tuple[PageUpdate, ...]]:
        each = -(-self.most // PAGE)
        greedy = SamplingParams(max_new_tokens=1 << 20, temperature=0.0)
        slots = range(1, self.count + 1)
        self.length = 0
        return (
            tuple(SlotReset(s, 0, 0, 0, 1, 1, 0, greedy) for s in slots),
            tuple(
                PageUpdate(s, 0, array("i", range(1 + (s - 1) * each, 1 + s * each))) for s in slots
            ),
        )

    def prompt(self, rows: int, *, is_first: bool = True) -> StepPlan:
        """The next `rows` of every request, the last one sampled."""
        resets, pages = self.admit() if is_first else ((), ())
        start, end = self.length, self.length + rows
        spans = [x for s in range(1, self.count + 1) for x in (s, start, start, end, 1)]
        vocab_size = self.runner.base.config.vocab_size
        ids = self._ids.integers(0, vocab_size, rows * self.count).astype(np.int32)
        self.length = end
        return self._plan(spans, array("i", ids.tobytes()), resets, pages)

    def decode(self) -> StepPlan:
        """One more row of each, whose id is on the device."""
        at = self.length
        spans = [x for s in range(1, self.count + 1) for x in (s, at, at, at + 1, 1)]
        self.length += 1
        return self._plan(spans, array("i", [-1] * self.count))

    def _plan(
        self,
        spans: list[int],
        ids: array[int],
        resets: tuple[SlotReset, ...] = (),
        pages: tuple[PageUpdate, ...] = (),
    ) -> StepPlan:
        self.step += 1
        return StepPlan(self.step, array("i", spans), ids, resets, pages)

    def run(self, plans: int) -> tuple[float, float]:
        """Decode steps, each answered after the next was launched: seconds a step, and of them
        those that launching took."""
        pending, launching = None, 0.0
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(plans):
            plan = self.decode()
            at = time.perf_counter()
            launched = self.runner.launch(plan)
            launching += time.perf_counter() - at
            if pending is not None:
                pending.result()
            pending = launched
        assert pending is not None
        pending.result()
        return (time.perf_counter() - began) / plans, launching / plans
