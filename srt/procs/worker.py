"""A worker process: receives plans, executes them in order, rank 0 answers. Decides nothing.

Composition root: the only owner of both the sockets and the `Runner`.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, InvariantBroken
from ..lifecycle import Progress, Shutdown
from ..log import event
from ..messages import StepPlan
from ..net.ipc import Hub, Inbox, Outbox
from ..profiling import Profile
from ..worker.heap import keep_freed_memory
from .boot import Boot, run_child
from .pipeline import pipeline_plans, profile

if TYPE_CHECKING:
    from ..worker.device_runner import DeviceRunner
    from ..worker.runner import Runner

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 0.1


def serve(boot: Boot, hub: Hub, launcher: Outbox) -> None:
    """Until `Shutdown`. Raises what ends the process."""
    inbox = hub.inbox(boot.endpoints.workers[boot.rank])
    scheduler = hub.outbox(boot.endpoints.scheduler)
    runner = _load(boot, launcher)
    keep_freed_memory()
    ready = runner.capacity(boot.rank)
    sizes = {"weight_bytes": ready.weight_bytes, "kv_bytes": ready.kv_bytes}
    log.info(event("loaded", {"num_pages": ready.num_pages, "num_slots": ready.num_slots, **sizes}))
    answers = scheduler if boot.rank == 0 else None
    if boot.config.parallel.device == "cuda":
        device = _on_device(boot, runner, launcher)
        launcher.send(ready)
        pipeline_plans(inbox, device, answers)
    else:
        launcher.send(ready)
        execute_plans(inbox, runner, answers)


def execute_plans(inbox: Inbox, runner: Runner, scheduler: Outbox | None) -> None:
    while True:
        message = inbox.recv()
        if isinstance(message, StepPlan):
            result = runner.execute(message)
            if scheduler is not None:
                scheduler.send(result)
            runner.profiler.stepped()
        elif isinstance(message, Profile):
            done = profile(message, runner.profiler)
            if scheduler is not None:
                scheduler.send(done)
        elif isinstance(message, Shutdown):
            return
        else:
            raise InvariantBroken(f"a worker cannot handle {type(message).__name__}")


def _on_device(boot: Boot, runner: Runner, launcher: Outbox) -> DeviceRunner:
    """Captures decode steps before the first request can come. Raises ConfigError when the memory
    left does not suffice."""
    from ..worker.device_runner import DeviceRunner

    report = _ProgressReport(boot.rank, launcher)
    try:
        return DeviceRunner.capture(runner, boot.config.parallel, report)
    except RuntimeError as e:
        if "out of memory" not in str(e):
            raise
        raise ConfigError(
            "the device's memory does not suffice for a step beside weights and caches: lower "
            f"--kv-cache-memory ({boot.config.cache.memory_bytes} bytes) or --chunked-prefill-size"
        ) from None


def _load(boot: Boot, launcher: Outbox) -> Runner:
    """Raises ConfigError when memory does not suffice: torch says it with a RuntimeError; and when
    `TREADLE_KERNELS` asks for what is not there.
    """
    try:  # here, as it binds the kernels and logs the choice: at the top no log is set up yet
        from ..worker.runner import Runner
    except RuntimeError as e:
        raise ConfigError(str(e)) from None
    report = _ProgressReport(boot.rank, launcher)
    path = Path(boot.model_path)
    try:
        return Runner.load(boot.config, boot.model_config, path, report)
    except (MemoryError, RuntimeError) as e:
        words = ("allocate memory", "out of memory")
        if isinstance(e, RuntimeError) and not any(x in str(e) for x in words):
            raise
        raise ConfigError(
            "out of memory while loading: lower --kv-cache-memory "
            f"({boot.config.cache.memory_bytes} bytes) or take a smaller model"
        ) from None


class _ProgressReport:
    """Called per tensor; sends a few messages per second and always the last one."""

    def __init__(self, rank: int, launcher: Outbox) -> None:
        self._rank = rank
        self._launcher = launcher
        self._sent = 0.0

    def __call__(self, done_bytes: int, total_bytes: int, label: str) -> None:
        now = time.monotonic()
        if done_bytes >= total_bytes or now - self._sent >= PROGRESS_INTERVAL_S:
            self._sent = now
            self._launcher.send(Progress(self._rank, done_bytes, total_bytes, label))


if __name__ == "__main__":
    sys.exit(run_child(serve))
