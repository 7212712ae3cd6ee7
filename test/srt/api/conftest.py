"""A served app without an engine for every test of the HTTP routes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from test.serving import CONTEXT_LEN, READY, Bench, FakeEngine, make_service, serving
from treadle.srt.api.app import make_app
from treadle.srt.config import NetSection
from treadle.srt.net.http_server import HttpServer, bind

KEY = "key"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as served:
        yield served


@dataclass
class OverHttp:
    """A real HTTP server in this process, on a free port, for SDKs."""

    url: str
    key: str
    engine: FakeEngine


@pytest.fixture
def over_http(request: pytest.FixtureRequest) -> Iterator[OverHttp]:
    """Its indirect parameter is the context length."""
    context_len: int = getattr(request, "param", CONTEXT_LEN)
    sock = bind("127.0.0.1", 0)
    engine = FakeEngine(cached=3)
    started: list[HttpServer] = []
    is_up = threading.Event()

    async def run() -> None:
        net = NetSection(api_key=KEY, log_level_http="info")
        service = make_service(engine, net, context_len=context_len)
        receiving = asyncio.create_task(service.frontend.run())
        engine.put(READY)
        server = HttpServer(make_app(service, ""), service.config.net)
        started.append(server)
        is_up.set()
        await server.serve(sockets=[sock])
        receiving.cancel()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    sock.listen()
    thread.start()
    is_up.wait()
    yield OverHttp(f"http://127.0.0.1:{sock.getsockname()[1]}", KEY, engine)
    started[0].should_exit = True
    thread.join()
