"""A replica that follows a script, byte by byte, over a real socket.

A script gets the request and the connection and writes what it likes: half an answer, nothing, a
reset. Questions of the router itself (readiness, loads) are answered unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import orjson

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error",
           502: "Bad Gateway", 503: "Service Unavailable", 429: "Too Many"}  # fmt: skip


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    is_gone: asyncio.Event = field(default_factory=asyncio.Event)  # the router has hung up

    @property
    def json(self):
        return orjson.loads(self.body)


@dataclass
class Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Closes with RST: what is under way is lost, as when a process is killed."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Seen, Wire], Awaitable[None]]


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'X')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> Script:
    async def script(seen: Seen, wire: Wire) -> None:
        own = {"content-type": "application/json", "content-length": str(len(body))}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.write(head(status, own | named) + body)

    return script


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


STREAM = head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
LAST_CHUNK = b"0\r\n\r\n"


def stream(*parts: bytes, is_whole: bool = True) -> Script:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.write(STREAM)
        for part in parts:
            await wire.write(chunk(part))
            await asyncio.sleep(0)
        if is_whole:
            await wire.write(LAST_CHUNK)
        else:
            wire.reset()

    return script


async def reset_before_headers(seen: Seen, wire: Wire) -> None:
    wire.reset()


async def hang(seen: Seen, wire: Wire) -> None:
    """Says nothing until the router hangs up."""
    await wire.reader.read(1)
    seen.is_gone.set()


class FakeReplica:
    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or answer()
        self.ready = 200
        self.load: dict[str, object] | None = None
        self.seen: list[Seen] = []
        self.asked: list[Seen] = []  # by the router itself
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> FakeReplica:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while not writer.is_closing() and (seen := await read_request(reader)) is not None:
                await self._answer(seen, Wire(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, seen: Seen, wire: Wire) -> None:
        path = seen.path.partition("?")[0]
        if seen.method == "GET" and path in ("/ready", "/health", "/v1/loads"):
            self.asked.append(seen)
            if path != "/v1/loads":
                await answer(self.ready)(seen, wire)
            elif self.load is None:
                await answer(404)(seen, wire)
            else:
                await answer(200, orjson.dumps({"loads": [self.load]}))(seen, wire)
            return
        self.seen.append(seen)
        await self.script(seen, wire)


async def read_request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = text.split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    pairs = (line.partition(": ") for line in lines)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)
