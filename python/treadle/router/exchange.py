"""One request and its answer, as those who wait for the answer see it.

Reads give all bytes that have come. Closing an exchange whose answer is not whole closes its
connection, by which the replica learns that nobody waits any more; a connection whose answer is
whole belongs to others already, whether or not all of the answer was read.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from .answer import Answer, RawHeader
from .outcomes import Break, Broken

MAX_WHOLE_BYTES = 1 << 26  # of an answer that is held as a whole


class Carrier(Protocol):
    """What an exchange needs of its connection."""

    def taken(self) -> None:
        """All bytes that had come were read."""

    def abort(self) -> None: ...


class Exchange:
    def __init__(self, carrier: Carrier, answer: Answer) -> None:
        self.answer = answer
        self._carrier: Carrier | None = carrier
        self._error: Broken | None = None
        self._has_read = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def status(self) -> int:
        return self.answer.status

    @property
    def headers(self) -> list[RawHeader]:
        """As they came, names in lower case."""
        return self.answer.headers

    def header(self, name: str) -> str | None:
        """The first of that lower-case name."""
        key = name.encode()
        return next((v.decode("latin-1") for n, v in self.answer.headers if n == key), None)

    @property
    def content_type(self) -> str:
        """Without parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def is_read(self) -> bool:
        """Whether the whole answer was read."""
        return self.answer.is_whole and not self.answer.pieces

    async def head(self) -> None:
        """Until status and headers are there. Raises Broken."""
        while not self.answer.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """All bytes that are there, once there are any; none at the end.

        Raises Broken; at the first read also when bytes had come before the answer broke: then it
        is as if there were none, and another replica may be asked.
        """
        answer = self.answer
        while True:
            if self._error is not None and not (self._has_read and answer.pieces):
                raise self._error
            if answer.pieces:
                return self._take()
            if answer.is_whole:
                return b""
            await self._wait()

    async def read_all(self) -> bytes:
        """The rest. Raises Broken, also when that is more than `MAX_WHOLE_BYTES`."""
        parts, size = [], 0
        while not self.is_read:
            parts.append(await self.read())
            size += len(parts[-1])
            if size > MAX_WHOLE_BYTES:
                raise Broken(Break.NO_ANSWER, f"the answer has more than {MAX_WHOLE_BYTES} bytes")
        return b"".join(parts)

    def close(self) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            carrier.abort()

    def came(self) -> None:
        """Something did."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def ended(self, error: Broken | None = None) -> None:
        """The connection has no more part in this: the answer is whole, or it broke."""
        self._carrier = None
        self._error = error
        self.came()

    def _take(self) -> bytes:
        pieces = self.answer.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._has_read = True
        if self._carrier is not None:
            self._carrier.taken()
        return data

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
