"""A router in this process, on a free port, before fake replicas that are ready."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from test.treadle.router.fake_replica import FakeReplica, Script
from treadle.router import process
from treadle.router.config import RouterConfig
from treadle.router.keys import hash_key
from treadle.router.process import Router, make_upstream, settle
from treadle.srt.net.http_server import bind

WAIT_S = 60.0
process.TICK_S = 0.01  # each test stops a router
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@dataclass
class Bench:
    router: Router
    replicas: list[FakeReplica]
    port: int
    http: httpx.AsyncClient

    async def post(self, path: str = "/v1/chat/completions", body: Any = None, **headers: str):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(path, json=CHAT if body is None else body, headers=named)

    def replica(self, url: str) -> FakeReplica:
        (found,) = [r for r in self.replicas if r.url == url]
        return found

    def others(self, url: str) -> list[FakeReplica]:
        return [r for r in self.replicas if r.url != url]

    def sessions_of(self, replica: FakeReplica, count: int) -> list[str]:
        """Names of new sessions that go there; which ones depends on its port."""
        first = self.router._replicas.fleet.first
        names = (f"s{i}" for i in itertools.count())
        its = (n for n in names if first(hash_key("", "session", n.encode())) == replica.url)
        return list(itertools.islice(its, count))

    def life(self, replica: FakeReplica):
        return self.router._replicas.get(replica.url).life

    async def probe(self) -> None:
        for known in self.router._replicas:
            await self.router._prober.probe(known)

    async def metrics(self) -> str:
        return (await self.http.get("/metrics")).text

    async def send_raw(self, body: bytes, path: str = "/generate", headers: str = ""):
        """A connection on which a whole request was written."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        text = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        writer.write(text.encode() + body)
        await writer.drain()
        return reader, writer


def config_of(urls: list[str], **sections: dict[str, Any]) -> RouterConfig:
    config = RouterConfig()
    own: dict[str, dict[str, Any]] = {
        "net": {"host": "127.0.0.1", "port": 0, "log_level": "warning"},
        "workers": {"urls": " ".join(urls)},
        "watch": {"prometheus_port": -1},
        "health": {"interval_s": 3600.0, "load_interval_s": 3600.0},
    }
    for name, fields in sections.items():
        own[name] = own.get(name, {}) | fields
    for name, fields in own.items():
        config = replace(config, **{name: replace(getattr(config, name), **fields)})
    return settle(config)


@asynccontextmanager
async def routing(
    *scripts: Script, is_ready: bool = True, **sections: dict[str, Any]
) -> AsyncIterator[Bench]:
    """`scripts`: one for each replica."""
    replicas = [await FakeReplica(script).start() for script in scripts]
    config = config_of([replica.url for replica in replicas], **sections)
    async with make_upstream(config) as upstream:
        router = Router(config, upstream)
        if is_ready:
            await asyncio.gather(*router._prober.due(time.monotonic()))
        sock = bind(config.net.host, config.net.port)
        task = asyncio.create_task(router.serve(sock))
        port = sock.getsockname()[1]
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S, limits=limits
        ) as http:
            try:
                yield Bench(router, replicas, port, http)
            finally:
                router._stop()
                router._stop()
                await asyncio.wait_for(task, WAIT_S)
                for replica in replicas:
                    await replica.stop()


async def until(condition, timeout_s: float = WAIT_S) -> None:
    """Polls; for what no event tells."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def pass_time(seconds: float) -> None:
    """The running loop's clock goes on by `seconds`, so what waits for less ends now."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]
