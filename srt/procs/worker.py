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
from ..messages import Done, StepPlan
from ..net.ipc import Hub, Inbox, Outbox
from ..profiling import Profile
from ..worker.heap import keep_freed_memory
from .boot import Boot, run_child

if TYPE_CHECKING:
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
    launcher.send(ready)
    execute_plans(inbox, runner, scheduler if boot.rank == 0 else None)


def execute_plans(inbox: Inbox, runner: Runner, scheduler: Outbox | None) -> None:
    while True:
        message = inbox.recv()
        if isinstance(message, StepPlan):
            result = runner.execute(message)
            if scheduler is not None:
                scheduler.send(result)
            runner.profiler.stepped()
        elif isinstance(message, Profile):
            done = _profile(message, runner)
            if scheduler is not None:
                scheduler.send(done)
        elif isinstance(message, Shutdown):
            return
        else:
            raise InvariantBroken(f"a worker cannot handle {type(message).__name__}")


def _profile(message: Profile, runner: Runner) -> Done:
    profiler, options = runner.profiler, message.options
    ok, text = profiler.stop() if options is None else profiler.start(options)
    return Done(message.token, ok, text)


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
        if isinstance(e, RuntimeError) and "allocate memory" not in str(e):
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
