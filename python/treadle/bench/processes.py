"""Servers under test as child processes: started on a free port, weighed, stopped.

A `ServerProcess` is one process tree. Its log goes to a temporary file and is shown when it does
not come up.
"""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

import psutil

from .control import Unready
from .environment import ROOT

START_S = 600.0  # a busy machine takes minutes to import and load
STOP_S = 30.0
POLL_S = 0.2
LOG_CHARACTERS = 4000
OWN_COMMAND = f"{shlex.quote(sys.executable)} -m treadle.launch_server"


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server; `{port}` in `argv` is replaced by its port."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    ready_path: str

    def __str__(self) -> str:
        """The command line without folders."""
        return " ".join(Path(word).name if word.startswith("/") else word for word in self.argv)


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a process tree, MiB. `pss` counts a page that processes share once."""

    rss: float
    pss: float


class ServerProcess:
    """A context manager."""

    def __init__(self, launch: Launch) -> None:
        self.name = launch.name
        self.launch = launch
        self.port = free_port()
        self._log = _open_log()
        self._process = subprocess.Popen(
            [word.replace("{port}", str(self.port)) for word in launch.argv],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **launch.environ},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        """Raises Unready with the end of the log."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(POLL_S)
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace")[-LOG_CHARACTERS:]
        raise Unready(f"{self.name} did not come up:\n{tail}")

    def memory(self) -> Memory:
        rss = pss = 0
        for process in self._tree():
            info = process.memory_full_info()
            rss += info.rss
            pss += info.pss
        return Memory(round(rss / 2**20, 1), round(pss / 2**20, 1))

    def cpu_s(self) -> dict[str, float]:
        """CPU time so far of each process, by its title."""
        times = {" ".join(x.cmdline()[:1]): x.cpu_times() for x in self._tree()}
        return {title: found.user + found.system for title, found in times.items()}

    def stop(self) -> None:
        """In order first; what is left after `STOP_S` is killed."""
        tree = self._tree() if self._process.poll() is None else []
        if tree:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(tree, timeout=STOP_S)
        for process in alive:
            process.kill()
        self._log.close()

    def _tree(self) -> list[psutil.Process]:
        top = psutil.Process(self._process.pid)
        return [top, *top.children(recursive=True)]

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STOP_S)
        try:
            connection.request("GET", self.launch.ready_path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def stop_servers_on_term() -> None:
    """Make SIGTERM an exception, so that servers are stopped on the way out."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def _open_log() -> IO[bytes]:
    return tempfile.TemporaryFile()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def treadle_launch(
    command: str, model: str, threads: int | None, more: Sequence[str] = ()
) -> Launch:
    """`command` starts our server and is given the flags of the test. `threads` None: as many as it
    likes."""
    argv = [*shlex.split(command), "--model-path", model]
    argv += [] if threads is None else ["--num-threads", str(threads)]
    argv += ["--port", "{port}", "--log-level", "warning", *more]
    path = os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Launch("treadle", tuple(argv), {"PYTHONPATH": path}, "/ready")


def llama_launch(name: str, binary: Path, model: Path, threads: int, more: Sequence[str]) -> Launch:
    """`name` says in what it differs from the defaults, for which `more` holds the flags."""
    count = str(threads)
    argv = [str(binary), "-m", str(model), "-t", count, "-tb", count, "--no-webui"]
    argv += ["--host", "127.0.0.1", "--port", "{port}", *more]
    folders = [str(binary.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return Launch(name, tuple(argv), {"LD_LIBRARY_PATH": os.pathsep.join(folders)}, "/health")


def llama_version(binary: Path) -> str:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(binary.parent)}
    run = subprocess.run(
        [str(binary), "--version"], env=environ, capture_output=True, text=True, check=True
    )
    lines = (run.stdout + run.stderr).strip().splitlines()
    return "; ".join(line.strip() for line in lines[:2])
