"""Questions to the scheduler that have one answer each, matched by a number.

Invariant: every expected reply ends: with its answer, with the loss of the engine, or cancelled by
the one who waited, and then nothing is kept of it.
"""

from __future__ import annotations

import asyncio
from itertools import count

from ..errors import TreadleError
from ..messages import Done, Stats
from ..snapshot import Snapshot

Reply = Done | Stats | Snapshot


class Replies:
    def __init__(self) -> None:
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}

    def expect(self) -> tuple[int, asyncio.Future[Reply]]:
        """A number that was never used before, and the future of its answer."""
        token = next(self._tokens)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        return token, future

    def answer(self, token: int, reply: Reply) -> None:
        """An answer that nobody waits for any more is dropped."""
        future = self._waiting.get(token)
        if future is not None and not future.done():
            future.set_result(reply)

    def fail(self, error: TreadleError) -> None:
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)
