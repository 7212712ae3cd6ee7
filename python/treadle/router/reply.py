"""The answer to one client: bytes as they come, and how an answer that breaks off is ended.

    nothing passed on yet        an error with its own status
    a stream of events           one error event, no end marker
    any other body               the connection is cut, so that the client sees it is incomplete

Headers of a stream go out at once; others wait for the first bytes of their body, so that until
then another replica may still answer. What has come of a stream may end in half an event, which is
held back until the rest is there, and dropped when the stream breaks: an error event begins a line.

Where another replica goes on after headers went out, they name the wrong one. The stream then
begins with a comment, which readers of events skip: `: x-router-replica: ADDRESS`.
"""

from __future__ import annotations

import orjson
from starlette.types import Send

from ..srt.errors import TreadleError
from ..srt.net.error_bodies import body_for, error_body, error_headers, is_anthropic
from ..srt.net.sse import event

MAX_HELD_BYTES = 1 << 16  # a longer event is passed on in parts
NAMING = (b"x-router-replica", b"x-router-decision")  # headers that say who answers
Headers = list[tuple[bytes, bytes]]


class Reply:
    def __init__(self, send: Send, path: str) -> None:
        """`path` says in which dialect errors are."""
        self._send = send
        self._path = path
        self._pending: tuple[int, Headers] | None = None
        self._held = b""
        self._comment = b""  # before the next bytes
        self.status: int | None = None  # once it was sent
        self.is_stream = False
        self.has_body = False  # whether any byte of a body was passed on
        self.is_over = False
        self.is_complete = False

    async def start(self, status: int, headers: Headers, *, is_stream: bool) -> None:
        """A second start, after a replica that gave no body, keeps the status that was sent.

        Raises BrokenAnswer when the client has been told another status.
        """
        self._held = b""
        if self.status is not None:
            if status != self.status or is_stream != self.is_stream:
                raise BrokenAnswer(f"another replica answered with status {status}")
            named = [b": %s: %s\n" % pair for pair in headers if pair[0] in NAMING]
            self._comment = b"".join([*named, b"\n"]) if named else b""
            return
        self.is_stream = is_stream
        self._pending = (status, headers)
        if is_stream:
            await self._begin()

    async def write(self, data: bytes) -> None:
        if self.is_stream:
            data = self._whole_events(data)
        if data:
            await self._write(data, more=True)

    async def end(self, last: bytes = b"") -> None:
        """The answer is complete; `last` are its last bytes."""
        self.is_over = self.is_complete = True
        last, self._held = self._held + last, b""
        await self._write(last, more=False)

    async def fail(self, error: TreadleError, headers: Headers) -> None:
        """In the way that what was sent leaves open. `headers` go with an error of its own."""
        if self.is_over:
            return
        self.is_over = True
        if self.status is None:
            await self._refuse(error, headers)
        elif self.is_stream:
            self._held = b""
            await self._write(error_event(error, self._path), more=False)
        # else: a body without its end, for which the server cuts the connection

    async def _refuse(self, error: TreadleError, headers: Headers) -> None:
        body = orjson.dumps(body_for(error, self._path))
        own = {"content-type": "application/json", "cache-control": "no-store"}
        own |= error_headers(error) | {"content-length": str(len(body))}
        pairs = [(name.encode(), value.encode()) for name, value in own.items()]
        self._pending = (error.status, [*pairs, *headers])
        await self._write(body, more=False)

    async def _begin(self) -> None:
        if self._pending is not None:
            self.status, headers = self._pending
            self._pending = None
            await self._send(
                {"type": "http.response.start", "status": self.status, "headers": headers}
            )

    async def _write(self, data: bytes, *, more: bool) -> None:
        await self._begin()
        self.has_body = self.has_body or bool(data)
        data, self._comment = self._comment + data, b""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _whole_events(self, data: bytes) -> bytes:
        """What may be passed on now; the rest is held."""
        if not self._held and data.endswith(b"\n\n"):
            return data
        data = self._held + data
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            end = data.rfind(b"\r\n\r\n") + 4 if b"\r\n\r\n" in data else 0
        if len(data) - end > MAX_HELD_BYTES:
            end = len(data)
        self._held = data[end:]
        return data[:end]


class BrokenAnswer(Exception):
    """What a client has been told cannot be kept."""


def error_event(error: TreadleError, path: str) -> bytes:
    """In the dialect of `path`."""
    if is_anthropic(path):
        return b"event: error\n" + event(orjson.dumps(body_for(error, path)))
    return event(orjson.dumps(error_body(error)))
