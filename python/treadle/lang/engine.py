"""`Engine`: a local server for scripts and notebooks, started and stopped with the object.

It is the same server as `treadle serve` in a process of its own, on a free port of this host. It
ends with `shutdown`, with the block, with the interpreter; and a child of a killed process ends
itself, as its standard input closes.
"""

from __future__ import annotations

import atexit
import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from ..client.background import background
from ..client.errors import EngineFailed, ProgramError, Unsupported
from .backend import Session
from .remote import RuntimeEndpoint

Json = dict[str, Any]

STOP_S = 30.0
LOG_LINES = 30
POLL_S = 0.05  # between two questions whether it serves
ANSWER_S = 5.0
LOOPBACK = "127.0.0.1"


class Engine(RuntimeEndpoint):
    """A server on this machine, usable as a backend. Flags are those of `treadle serve`, with
    underscores: `Engine("demo:v41-mini", num_threads=1)`; a switch is True, or False for `--no-`.

    >>> tr.Engine(model="no/such/model")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    treadle.client.errors.EngineFailed: the server did not start: ...
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        model_path: str | None = None,
        port: int = 0,
        start_timeout_s: float = 600.0,
        **flags: str | int | float | bool,
    ) -> None:
        """Returns when it serves. `model_path` is another name of `model`. `port` 0: a free
        one. Raises EngineFailed with the end of its log."""
        found = model or model_path
        if not found:
            raise ProgramError("Engine needs a model: a path, or demo:v41-mini")
        with _hold(port) as held:
            port = int(held.getsockname()[1])
            self._server = _Process(
                [sys.executable, "-m", "treadle.lang.engine_child", "--model-path", found,
                 "--port", str(port), *flag_words(flags)],
                port,
                start_timeout_s,
            )  # fmt: skip
        atexit.register(self._server.stop)
        super().__init__(f"http://{LOOPBACK}:{port}")

    def shutdown(self) -> None:
        """Ends the server; idempotent."""
        self.close()
        self._server.stop()
        atexit.unregister(self._server.stop)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        return_logprob: bool = False,
    ) -> Any:
        """As the route /generate: a dictionary, or a list of them for a list."""
        work = self.async_generate(
            prompt, sampling_params, input_ids=input_ids, return_logprob=return_logprob
        )
        return background().wait(work)

    async def async_generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        return_logprob: bool = False,
    ) -> Any:
        """As `generate`, from a coroutine."""
        given: Json = {"text": prompt, "input_ids": input_ids, "sampling_params": sampling_params}
        body = {name: value for name, value in given.items() if value is not None}
        if return_logprob:
            body["return_logprob"] = True
        return await self.post("/generate", body)

    def start_profile(self, output_dir: str | None = None, num_steps: int | None = None) -> Json:
        """Begins a trace of the workers; the answer says where its file will be."""
        given = {"output_dir": output_dir, "num_steps": num_steps}
        body = {name: value for name, value in given.items() if value is not None}
        return dict(background().wait(self.post("/start_profile", body)))

    def stop_profile(self) -> Json:
        """Ends the trace and writes its file."""
        return dict(background().wait(self.post("/stop_profile", {})))

    def encode(self, prompt: object) -> Json:
        """Raises Unsupported: the server generates text and has no embeddings."""
        raise Unsupported("encode: the server generates text and has no embeddings")

    def open_session(self, capacity_of_str_len: int, session_id: str | None = None) -> str:
        """Raises Unsupported: sessions are names that requests carry, nothing is opened."""
        raise Unsupported("open_session: a session is a name; run(..., session_id=...) gives it")

    def close_session(self, session_id: str) -> None:
        """Nothing more is asked under this session id; a hint."""
        background().wait(self.close_sessions([Session(session_id)]))


class Runtime(Engine):
    """`Engine` by its other name.

    >>> issubclass(tr.Runtime, tr.Engine)
    True
    """


def flag_words(flags: Mapping[str, str | int | float | bool]) -> list[str]:
    """As they stand on a command line."""
    words: list[str] = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if value is True:
            words.append(f"--{flag}")
        elif value is False:
            words.append(f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


class _Process:
    """The server's process, and the reader of its log, which keeps the last LOG_LINES. Whether it
    serves is asked of it: its log may be silent."""

    def __init__(self, command: Sequence[str], port: int, timeout_s: float) -> None:
        """`timeout_s` bounds the whole start. Raises EngineFailed."""
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is this side's to handle
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait(port, timeout_s)
        except BaseException:
            self.stop()
            raise

    def _read(self) -> None:
        assert self._popen.stderr is not None
        self._log.extend(self._popen.stderr)

    def _wait(self, port: int, timeout_s: float) -> None:
        ends = time.monotonic() + timeout_s
        while not _is_ready(port):
            try:
                self._popen.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < ends:
                    continue
                raise EngineFailed(
                    f"the server did not start in {timeout_s:g} s: {self._end()}"
                ) from None
            self._reader.join(STOP_S)
            raise EngineFailed(f"the server did not start: {self._end()}")

    def _end(self) -> str:
        return "".join(self._log).strip()

    def stop(self) -> None:
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            try:
                self._popen.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        self._reader.join(STOP_S)
        for pipe in (self._popen.stdin, self._popen.stderr):
            if pipe is not None:
                pipe.close()


def _hold(port: int) -> socket.socket:
    """Bound to `port`, or for 0 to a free one, and not listening: so nobody else is given it until
    the server listens there. Raises EngineFailed."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        held.close()
        raise EngineFailed(f"the server did not start: port {port}: {error}") from None
    return held


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
