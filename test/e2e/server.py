"""A whole server as a user starts it, on a tiny random checkpoint and a port of its own choice."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0  # torch takes long to import on a busy machine


class Server:
    """`python -m module` with `argv`; its sockets go below `tmp`."""

    def __init__(self, *argv: str, module: str = "treadle.launch_server") -> None:
        self.tmp = Path(tempfile.mkdtemp(prefix="t-"))  # a socket's path must be short
        self.log: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "TMPDIR": str(self.tmp)},
        )
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        self.children: list[psutil.Process] = []
        self.url = ""

    def wait_until_listening(self, pattern: str = r"listening host=\S+ port=(\d+)") -> None:
        """All children are there; requests are refused. `pattern` finds the port in the log."""
        self.url = f"http://127.0.0.1:{self._find(pattern)}"
        self.children = psutil.Process(self.process.pid).children()

    def wait_until_serving(self) -> None:
        """After `wait_until_listening` or instead of it."""
        if not self.url:
            self.wait_until_listening()
        self._find(r"serving start_s")

    @contextmanager
    def held(self) -> Iterator[None]:
        """No step is made inside, so what runs goes on running."""
        worker = self.child("worker0")
        worker.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            worker.send_signal(signal.SIGCONT)

    def child(self, name: str) -> psutil.Process:
        (found,) = [p for p in self.children if p.cmdline()[0] == f"treadle::{name}"]
        return found

    def finish(self) -> int:
        """Exit status, once everything that holds the log has ended."""
        status = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert not self._reader.is_alive(), "an orphan holds the log"
        while (line := self._lines.get()) is not None:
            self.log.append(line)
        return status

    def orphans(self) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(self.children, timeout=WAIT_S)
        return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for child in self.children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        shutil.rmtree(self.tmp, ignore_errors=True)  # closed twice by some tests

    def _find(self, pattern: str) -> str:
        """The first group of the first new line that matches."""
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            self.log.append(line)
            if found := re.search(pattern, line):
                return found[1] if found.groups() else ""
        raise AssertionError(f"no {pattern} in the log:\n" + "".join(self.log))

    def _read(self, pipe: IO[str]) -> None:
        for line in pipe:
            self._lines.put(line)
        self._lines.put(None)
