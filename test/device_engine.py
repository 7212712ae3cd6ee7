"""The engine of `engine.py` with the runner of a device, on the CPU: plans are launched as soon as
they are made, and answered one step late.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import torch

from test.engine import ON_CPU, Engine
from treadle.srt.config import ParallelSection
from treadle.srt.worker.device_runner import DeviceRunner, PendingStep

CPU = torch.device("cpu")


class DeviceEngine(Engine):
    """`graphs`: the largest captured step, on a device; the default is no device."""

    def __init__(self, path: Path, graphs: int | None = None, **options: object) -> None:
        parallel = ON_CPU
        if graphs is not None:
            parallel = ParallelSection("cuda", attention_backend="triton", graph_batch=graphs)
        options = {"quantization": "none", "parallel": parallel} | options
        super().__init__(path, **options)  # type: ignore[arg-type]
        self.device = DeviceRunner.capture(self.runner, parallel, lambda done, total, label: None)
        self.pending: deque[PendingStep] = deque()

    def step(self) -> bool:
        self.now += 1.0
        while self.scheduler.can_plan and (plan := self.scheduler.plan(self.now)) is not None:
            self.pending.append(self.device.launch(plan))
        if self.pending:
            result = self.pending.popleft().result()
            self.take(self.scheduler.commit(result, self.now))
        self._take(self.scheduler.take_events())
        return self.scheduler.has_work or bool(self.pending)

    def preempt_all(self) -> None:
        while self.pending:
            result = self.pending.popleft().result()
            self._take(self.scheduler.commit(result, self.now).outputs)
        super().preempt_all()
