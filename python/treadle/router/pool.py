"""Connections that are idle, by origin, and those that are open at all.

The one that was used last is used next, so that those that are not needed grow old: after
`IDLE_S` they are closed. One that its replica has closed meanwhile is never taken, whether or not
the loop has told of it, though it may be among the idle ones until they are swept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from .connection import Connection
from .dialer import Dialer
from .origin import Origin
from .outcomes import Break, Broken

IDLE_S = 60.0  # well below what replicas allow, so that they never close one first
CLOSE_S = 1.0
Key = tuple[str, int, bool]


class Pool:
    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._idle: dict[Key, deque[tuple[float, Connection]]] = {}  # since when; oldest first
        self._open: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        self._is_closed = False

    @property
    def num_open(self) -> int:
        return len(self._open)

    @property
    def num_idle(self) -> int:
        return sum(map(len, self._idle.values()))

    def take(self, origin: Origin) -> Connection | None:
        """One that is idle."""
        idle = self._idle.get(origin.key)
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while idle:
            since, connection = idle.pop()
            if since > oldest and connection.is_quiet:
                return connection
            connection.abort()
        return None

    async def connect(self, origin: Origin) -> Connection:
        """A new one. Raises Broken."""
        key = origin.key

        def make() -> Connection:
            return Connection(lambda connection: self._keep(key, connection), self._forget)

        connection = await self._dialer.connect(origin, make)
        self._open.add(connection)
        if self._is_closed:
            connection.abort()
            raise Broken(Break.NOT_SENT, "the router is shutting down")
        return connection

    async def close(self) -> None:
        """All connections, whoever uses them."""
        self._is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        for connection in list(self._open):
            connection.abort()
        if self._open:
            self._is_empty.clear()
            with contextlib.suppress(TimeoutError):  # what does not close is the system's
                await asyncio.wait_for(self._is_empty.wait(), CLOSE_S)

    def _keep(self, key: Key, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.setdefault(key, deque()).append((loop.time(), connection))
        if self._sweeper is None:
            self._sweeper = loop.call_later(IDLE_S / 2, self._sweep)

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._is_empty.set()

    def _sweep(self) -> None:
        """Closes what has been idle for too long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE_S
        for key, idle in list(self._idle.items()):
            while idle and idle[0][0] <= oldest:
                idle.popleft()[1].abort()
            if not idle:
                del self._idle[key]
        self._sweeper = loop.call_later(IDLE_S / 2, self._sweep) if self._idle else None
