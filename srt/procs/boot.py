"""What every child process does first and last: read its boot record, watch its parent, report.

A child is started as `python -m treadle.srt.procs.<name>` with a `Boot` as JSON on standard input.
`run_child` turns whatever ends its main function into at most one `Failed` to the launcher and an
exit status. A child never outlives the launcher, however that died.

What arrives in the inbox of each role (senders in brackets), besides the traffic of requests:

    tokenizer  Ready(role="scheduler", num_pages, num_slots) [launcher]: the replica is up; until
               then /health answers 503. Answer with Ready("tokenizer") once requests are accepted.
               Failed [launcher]: another process (or the launcher) died; answer all clients
               with `WorkerLost`, accept no more, exit 1 within two seconds.
               Shutdown [launcher]: accept no more, let running requests end for
               `config.api.drain_s`, exit 0; a second one: end them now, exit 0.
    scheduler  Ready(role="worker", num_pages, num_slots) [launcher]: capacities; answered with
               Ready("scheduler", ...same numbers) to the launcher. Shutdown [launcher]: exit 0.
    worker     StepPlan [scheduler]; Shutdown [launcher]: exit 0.
    launcher   Ready, Progress, Failed [all].
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import setproctitle

from ..config import ServerConfig
from ..errors import InvariantBroken, TreadleError
from ..lifecycle import Failed
from ..log import setup_logging
from ..model_config import ModelConfig
from ..net.ipc import Endpoints, Hub, Outbox
from ..net.typed import dump_json, load_json

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT_POLL_S = 0.25
ORPHAN_GRACE_S = 5.0  # for a tokenizer process to answer its clients after the launcher's death
LAST_WORD_MS = 1000  # how long a closing child waits for its report to leave


@dataclass(frozen=True, slots=True)
class Boot:
    """`config` is resolved; `model_path` is a local file or folder. `run_folder` holds sockets."""

    role: str  # "tokenizer", "scheduler", "worker"
    rank: int
    config: ServerConfig
    model_config: ModelConfig
    model_path: str
    endpoints: Endpoints
    run_folder: str
    launcher_pid: int

    @property
    def name(self) -> str:
        return f"{self.role}{self.rank}" if self.role == "worker" else self.role


ChildMain = Callable[[Boot, Hub, Outbox], None]


def write_boot(boot: Boot) -> bytes:
    return dump_json(boot)


def read_boot() -> Boot:
    """The record on standard input. Raises WireError."""
    return load_json(Boot, sys.stdin.buffer.read())


def run_child(main: ChildMain, *, has_clients: bool = False) -> int:
    """Runs `main(boot, hub, launcher)` as a child process; returns the exit status.

    With `has_clients` the launcher's death arrives as a `Failed` in the process's own inbox, and
    `ORPHAN_GRACE_S` later the process ends; without, it is killed at once.
    """
    boot = read_boot()
    setup_logging(boot.config.net.log_level, boot.name)
    setproctitle.setproctitle(f"treadle::{boot.name}")
    watch_parent(boot, has_clients=has_clients)
    status = 0
    with Hub() as hub:
        launcher = hub.outbox(boot.endpoints.launcher, linger_ms=LAST_WORD_MS)
        try:
            main(boot, hub, launcher)
        except Exception as e:  # the top of a process
            launcher.send(Failed(boot.role, boot.rank, _describe(e)))
            status = 1
    if os.getppid() != boot.launcher_pid:  # nobody else is left to do it
        shutil.rmtree(boot.run_folder, ignore_errors=True)
    return status


def watch_parent(boot: Boot, *, has_clients: bool) -> None:
    """Polls for the parent's death; a process without clients asks the kernel for SIGKILL too."""
    if not has_clients:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    threading.Thread(
        target=_poll_parent, args=(boot, has_clients), name="parent-watch", daemon=True
    ).start()


def _poll_parent(boot: Boot, has_clients: bool) -> None:
    while os.getppid() == boot.launcher_pid:
        time.sleep(PARENT_POLL_S)
    if has_clients:
        with Hub() as hub:
            inbox = hub.outbox(boot.endpoints.tokenizer, linger_ms=LAST_WORD_MS)
            inbox.send(Failed("launcher", 0, "the launcher died"))
        time.sleep(ORPHAN_GRACE_S)
    shutil.rmtree(boot.run_folder, ignore_errors=True)
    os._exit(1)


def _describe(error: Exception) -> str:
    """One line for the user. The trace of what only a bug can raise goes to the log."""
    if isinstance(error, TreadleError) and not isinstance(error, InvariantBroken):
        return error.message
    if isinstance(error, (OSError, MemoryError)):
        return f"{type(error).__name__}: {error}"
    logging.getLogger(__name__).error("process_failed", exc_info=error)
    return f"{type(error).__name__}: {error}"
