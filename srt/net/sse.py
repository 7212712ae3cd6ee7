"""Server-sent events over plain ASGI: framing, and the response that watches for the client.

Every event is one `data: ` line and a blank line; the body ends with `DONE`. The stream's producer
is cancelled as soon as the client is gone, and `on_close` runs exactly once however the response
ends, also when not one event was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]

DATA = b"data: "
END = b"\n\n"
DONE = b"data: [DONE]\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would gather events otherwise
]


def event(data: bytes) -> bytes:
    """One event; `data` must hold no line break, which JSON never does."""
    return DATA + data + END


async def wait_disconnect(receive: Receive) -> None:
    """Returns when the client is gone. The request body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """An ASGI response with status 200 whose body is `events`, each item one or more events."""

    def __init__(self, events: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        self._events = events
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.create_task(self._send_all(send))
        watcher = asyncio.create_task(wait_disconnect(receive))
        try:
            await asyncio.wait((sender, watcher), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._on_close()
            watcher.cancel()
            sent = sender.done()
            sender.cancel()
            results = await asyncio.gather(sender, watcher, return_exceptions=True)
        if sent and isinstance(results[0], Exception) and not isinstance(results[0], OSError):
            raise results[0]

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        async for chunk in self._events:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
