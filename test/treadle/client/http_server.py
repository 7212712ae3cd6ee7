"""A real HTTP server inside the test, on the client's loop and a port of its own choice."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from treadle.client.background import background

Handler = Callable[["Asked"], Awaitable[web.StreamResponse] | web.StreamResponse | dict | list]


@dataclass(frozen=True)
class Asked:
    path: str
    body: Any
    headers: dict[str, str]
    request: web.Request


@dataclass(eq=False)
class HttpServer:
    """`handler` answers everything; a dictionary or list is JSON. A context manager."""

    handler: Handler
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> HttpServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Again on the same port after `stop`."""
        background().wait(self._start())

    def stop(self) -> None:
        background().wait(self._runner.cleanup())

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = json.loads(data) if data else None
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.path, body, headers, request))
        found = self.handler(self.asked[-1])
        if isinstance(found, dict | list):
            return web.json_response(found)
        return found if isinstance(found, web.StreamResponse) else await found


async def sse(asked: Asked, *parts: str) -> web.StreamResponse:
    """A stream of `parts` as they stand."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(asked.request)
    for part in parts:
        await response.write(part.encode())
    return response


def events(*values: object, done: bool = True) -> list[str]:
    """Each value as an event, and the end mark."""
    ends = ["data: [DONE]\n\n"] if done else []
    return [f"data: {json.dumps(value)}\n\n" for value in values] + ends
