"""A replica that answers at once, for measuring what stands before it: `python -m ... PORT_FILE`.

    GET  /ready            200
    POST /v1/completions   1 KiB of JSON; with `"stream": true` in the body `max_tokens` events,
                           `per_chunk` of them in each chunk, as fast as the other side takes them

Plain asyncio protocols on uvloop, so that it costs little beside a router.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import cast

import uvloop

TEXT = b'{"id": "x", "choices": [{"index": 0, "text": "%s"}]}'
BODY = TEXT % (b"x" * (1024 - len(TEXT) + 2))
EVENT = b"data: " + TEXT % (b"word" * 10) + b"\n\n"
DONE = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n\r\n"
PLAIN = HEAD % (b"application/json", b"content-length: %d" % len(BODY)) + BODY
READY = HEAD % (b"text/plain", b"content-length: 0")
STREAM = HEAD % (b"text/event-stream", b"transfer-encoding: chunked")
EVENTS_PER_WRITE = 32
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_TOKENS = re.compile(rb'"max_tokens": *(\d+)')
_PER_CHUNK = re.compile(rb'"per_chunk": *(\d+)')


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Replica(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = b""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of uvloop, which has no such base

    def connection_lost(self, error: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._data, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._data) < whole:
                return
            self._answer(self._data[:end], self._data[end + 4 : whole])
            self._data = self._data[whole:]

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET"):
            self._transport.write(READY)
        elif b'"stream": true' not in body:
            self._transport.write(PLAIN)
        else:
            tokens, size = (_number(pattern, body) for pattern in (_TOKENS, _PER_CHUNK))
            task = asyncio.ensure_future(self._stream(tokens, size))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _stream(self, count: int, per_chunk: int) -> None:
        self._transport.write(STREAM)
        piece = chunk(EVENT * per_chunk)
        while count > 0:
            await self._may_write.wait()
            now = max(1, min(count, EVENTS_PER_WRITE) // per_chunk)
            self._transport.writelines([piece] * now)
            count -= now * per_chunk
            await asyncio.sleep(0)
        self._transport.write(chunk(DONE) + b"0\r\n\r\n")


def _number(pattern: re.Pattern[bytes], body: bytes) -> int:
    found = pattern.search(body)
    return int(found[1]) if found else 1


async def serve(port_file: Path) -> None:
    server = await asyncio.get_running_loop().create_server(Replica, "127.0.0.1", 0)
    port_file.write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
