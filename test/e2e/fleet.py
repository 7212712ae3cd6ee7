"""Real replicas and a real router as processes, for tests that kill them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import httpx
import orjson
import psutil

from test.e2e.server import WAIT_S, Server
from test.tiny import tiny_gemma3

REPLICA_FLAGS = ("--load-format", "dummy", "--kv-cache-memory", "16M", "--skip-server-warmup",
                 "--max-running-requests", "64", "--num-threads", "1")  # fmt: skip
BODY = {"model": "m", "prompt": "the thread", "max_tokens": 40, "ignore_eos": True, "stream": True}


class Turn:
    """One streaming request as its client saw it."""

    def __init__(self) -> None:
        self.status = 0
        self.replica = ""
        self.decision = ""
        self.num_events = 0
        self.has_error = False
        self.is_done = False  # the end marker has come
        self.is_cut = False  # the connection broke
        self.has_begun = asyncio.Event()

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.is_done and not self.has_error

    async def run(self, http: httpx.AsyncClient, session: str, **changes: object) -> Turn:
        headers = {"x-session-id": session}
        try:
            async with http.stream(
                "POST", "/v1/completions", json={**BODY, **changes}, headers=headers
            ) as r:
                self.status = r.status_code
                self.replica = r.headers.get("x-router-replica", "")
                self.decision = r.headers.get("x-router-decision", "")
                rest = b""
                async for data in r.aiter_bytes():  # httpx's lines also end at U+0085 and others
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._read(line)
        except httpx.TransportError:
            self.is_cut = True
        return self

    def _read(self, line: bytes) -> None:
        if line == b"data: [DONE]":
            self.is_done = True
        elif line.startswith(b"data: {"):
            self.num_events += 1
            self.has_error = "error" in orjson.loads(line.removeprefix(b"data: "))
            self.has_begun.set()


class Fleet:
    """`count` replicas on one tiny model, and a router before them."""

    def __init__(self, folder: Path, count: int, *router_flags: str) -> None:
        self._model = str(tiny_gemma3(folder / "model"))
        self.servers: dict[str, Server] = {}
        self.router: Server | None = None
        self._started = [self._start("0") for _ in range(count)]
        try:
            self._begin(*router_flags)
        except BaseException:
            self.close()
            raise

    def _begin(self, *router_flags: str) -> None:
        for server in self._started:
            server.wait_until_serving()
            self.servers[server.url] = server
        self.router = Server(
            "--worker-urls", *self.servers, "--port", "0", "--host", "127.0.0.1",
            "--prometheus-port", "-1", "--health-check-timeout-secs", "60", *router_flags,
            module="treadle.launch_router",
        )  # fmt: skip
        self.router.wait_until_listening()
        self._wait_ready(len(self.servers))

    @property
    def url(self) -> str:
        assert self.router is not None
        return self.router.url

    def workers(self) -> dict[str, dict[str, object]]:
        rows = httpx.get(f"{self.url}/workers", timeout=WAIT_S).json()["workers"]
        return {row["url"]: row for row in rows}

    def kill(self, url: str) -> None:
        """SIGKILL to every process of a replica, first the one that holds the connections."""
        server = self.servers[url]
        for child in sorted(server.children, key=lambda c: "tokenizer" not in c.cmdline()[0]):
            with contextlib.suppress(psutil.NoSuchProcess):  # its launcher was faster
                child.kill()
        server.process.kill()

    def restart(self, url: str) -> None:
        """On the same port; does not wait."""
        self.servers[url].close()
        self.servers[url] = self._start(url.rpartition(":")[2])

    def wait_serving(self, url: str) -> None:
        self.servers[url].wait_until_serving()
        self._wait_ready(len(self.servers))

    def close(self) -> None:
        if self.router is not None:
            self.router.close()
        for server in {*self._started, *self.servers.values()}:
            server.close()

    def hold(self, url: str) -> psutil.Process:
        """Stops a replica's worker in its tracks."""
        worker = self.servers[url].child("worker0")
        worker.suspend()
        return worker

    def _start(self, port: str) -> Server:
        return Server("--model-path", self._model, "--port", port, *REPLICA_FLAGS)

    def _wait_ready(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while sum(row["status"] == "ready" for row in self.workers().values()) < count:
            assert time.monotonic() < deadline, self.workers()
            time.sleep(0.05)
