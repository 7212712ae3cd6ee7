"""The child processes of a launcher: start, learn of deaths and signals, end.

Owns process handles and the signal handlers of the launcher (SIGCHLD, SIGINT, SIGTERM, SIGHUP),
which only wake its poller. Children run in sessions of their own: a Ctrl-C at the terminal reaches
the launcher alone, which then stops them in order. Decides nothing about when to stop.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType, TracebackType

from ..device import kernels_of
from .boot import Boot, write_boot

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True, eq=False)
class Child:
    boot: Boot
    process: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return self.boot.name

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        if self.is_running:
            self.process.kill()
        self.process.wait()

    def describe_end(self) -> str:
        """How a process that is no longer running ended, for the user."""
        status = self.process.returncode
        if status >= 0:
            return f"{self.name} ended with exit status {status}"
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if -status == signal.SIGKILL else ""
        return f"{self.name} was killed by {name}{hint}"


def start_child(boot: Boot, module: str) -> Child:
    """`python -m module` with the boot record on standard input."""
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if boot.role == "worker":
        environ["OMP_NUM_THREADS"] = str(boot.config.parallel.num_threads)
        # torch's idle threads sleep at once: spinning, they would take the cores from ours
        environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if kernels := kernels_of(boot.config.parallel):
            environ.setdefault("TREADLE_KERNELS", kernels)
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, env=environ, start_new_session=True
    )
    assert process.stdin is not None
    try:
        with process.stdin as stdin:
            stdin.write(write_boot(boot))
    except BrokenPipeError:
        pass  # it died at once; the death is reported like any other
    return Child(boot, process)


def wait_for(children: Iterable[Child], timeout_s: float) -> bool:
    """Whether all ended in time."""
    deadline = time.monotonic() + timeout_s
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
    return True


class Signals:
    """Turns signals into bytes on a socket that a poller can wait for. Main thread only."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._old: dict[int, object] = {}
        self._old_fd = -1
        self.stop_requests = 0

    def fileno(self) -> int:
        return self._read.fileno()

    def clear(self) -> None:
        """Empties the socket; the counters stay."""
        try:
            while self._read.recv(4096):
                pass
        except BlockingIOError:
            return

    def __enter__(self) -> Signals:
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            self._old[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._old_fd)
        self._read.close()
        self._write.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number in STOP_SIGNALS:
            self.stop_requests += 1
