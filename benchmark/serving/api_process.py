"""The API process alone: the real one, with this process as its launcher, scheduler and clients.

    clients (sockets) <--HTTP--> API process <--ZeroMQ--> fake scheduler

Owns the child and the inboxes around it, and streaming connections that only count events, so that
nearly all the work of a run is the API process's. The child may be pinned to one core.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import orjson
import psutil
from benchmark.serving.servers import free_port

from treadle.srt.checkpoint import load_model_config, resolve_path
from treadle.srt.config import ModelSection, NetSection, ServerConfig
from treadle.srt.host import read_host_facts
from treadle.srt.lifecycle import Ready, Shutdown
from treadle.srt.messages import GenerateRequest, Message
from treadle.srt.net.ipc import Hub, make_endpoints
from treadle.srt.procs.boot import Boot
from treadle.srt.procs.children import start_child
from treadle.srt.procs.run_folder import RunFolder
from treadle.srt.resolve import resolve

START_S = 120.0
STOP_S = 10.0
RECEIVE_BYTES = 1 << 16
QUIET_S = 0.5  # without an event: the beginnings of all streams have come


class ApiProcess:
    """A context manager. `cores` empty: the process runs on any."""

    def __init__(self, model: str, cores: Sequence[int]) -> None:
        self.port = free_port()
        self._model = model
        self._cores = cores
        self._stack = ExitStack()

    def __enter__(self) -> ApiProcess:
        path = resolve_path(self._model)
        model_config = load_model_config(path, "")
        config = ServerConfig(
            model=ModelSection(path=self._model), net=NetSection(port=self.port, warmup=False)
        )
        folder = self._stack.enter_context(RunFolder()).path
        hub = self._stack.enter_context(Hub())
        endpoints = make_endpoints("ipc", folder, 1)
        launcher = hub.inbox(endpoints.launcher)
        self._scheduler = hub.inbox(endpoints.scheduler)
        self._outbox = hub.outbox(endpoints.tokenizer)
        boot = Boot(
            role="tokenizer",
            rank=0,
            config=resolve(config, model_config, read_host_facts()),
            model_config=model_config,
            model_path=str(path),
            endpoints=endpoints,
            run_folder=str(folder),
            launcher_pid=os.getpid(),
        )
        self._child = start_child(boot, "treadle.srt.procs.tokenizer")
        if self._cores:
            os.sched_setaffinity(self._child.process.pid, self._cores)
        self.send(Ready("scheduler", 0, num_pages=1, num_slots=1))
        if not isinstance(launcher.recv(START_S), Ready):
            raise RuntimeError("the API process did not come up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.send(Shutdown("the run is over"))
        try:
            self._child.process.wait(STOP_S)
        finally:
            self._child.kill()
            self._stack.close()

    def send(self, message: Message) -> None:
        self._outbox.send(message)

    def requests(self, count: int) -> list[GenerateRequest]:
        """The next `count` requests. Raises RuntimeError when they do not come."""
        found: list[GenerateRequest] = []
        while len(found) < count:
            message = self._scheduler.recv(START_S)
            if message is None:
                raise RuntimeError(f"{len(found)} of {count} requests reached the scheduler")
            if isinstance(message, GenerateRequest):
                found.append(message)
        return found

    @property
    def cpu_s(self) -> float:
        """User and system time of the process so far."""
        times = psutil.Process(self._child.process.pid).cpu_times()
        return times.user + times.system


class Streams:
    """Connections with one streaming request each. `num_events` counts those of all."""

    def __init__(self, port: int, count: int, path: str, body: dict[str, object]) -> None:
        data = orjson.dumps(body)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self.num_events = 0
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._last = [b""] * count  # byte of each stream
        for index in range(count):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(head.encode() + data)
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, index)
            self._sockets.append(connection)

    def wait(self, num_events: int) -> None:
        """Reads until so many have come in all. Raises RuntimeError when nothing comes."""
        while self.num_events < num_events:
            if not self._read(START_S):
                raise RuntimeError(f"{self.num_events} of {num_events} events came")

    def settle(self, least: int) -> None:
        """Reads until `least` events have come, and then nothing for `QUIET_S`."""
        self.wait(least)
        until = time.monotonic() + QUIET_S
        while time.monotonic() < until:
            if self._read(QUIET_S):
                until = time.monotonic() + QUIET_S

    def close(self) -> None:
        self._selector.close()
        for connection in self._sockets:
            connection.close()

    def _read(self, timeout_s: float) -> bool:
        """Whether anything came. Events end in two line feeds, which are nowhere else."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                raise RuntimeError("the server closed a stream")
            self.num_events += (self._last[key.data] + data).count(b"\n\n")
            self._last[key.data] = data[-1:]
        return bool(ready)
