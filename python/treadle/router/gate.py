"""How many requests may be under way, and how many come per second; the rest wait or are refused.

A bounded queue, first come first served. Full: 429 at once. Too long in it: 408.
"""

from __future__ import annotations

import asyncio
from collections import deque

from .errors import TooMany, WaitedTooLong


class Gate:
    """`max_concurrent` and `per_second`: not above 0 means no limit. `per_second` requests may come
    in a burst too.
    """

    def __init__(
        self, max_concurrent: int, per_second: float, queue_size: int, timeout_s: float
    ) -> None:
        self._max_concurrent = max_concurrent
        self._per_second = per_second
        self._queue_size = queue_size
        self._timeout_s = timeout_s
        self._queue: deque[asyncio.Future[None]] = deque()
        self._running = 0
        self._tokens = max(1.0, per_second)
        self._filled_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    async def enter(self) -> None:
        """Raises TooMany, WaitedTooLong. `leave` must follow when it did not raise."""
        loop = asyncio.get_running_loop()
        if not self._queue and self._take(loop.time()):
            return
        if len(self._queue) >= self._queue_size:
            raise TooMany(f"{self._queue_size} requests wait already; the queue is full")
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        self._serve()
        try:
            async with asyncio.timeout(self._timeout_s):
                await turn
        except BaseException as e:
            if turn.done() and not turn.cancelled():
                self.leave()  # its turn came in the same moment
            elif turn in self._queue:
                self._queue.remove(turn)
            if isinstance(e, TimeoutError):
                raise WaitedTooLong(f"waited {self._timeout_s:g} s for its turn") from None
            raise

    def leave(self) -> None:
        self._running -= 1
        self._serve()

    def _take(self, now: float) -> bool:
        if 0 < self._max_concurrent <= self._running:
            return False
        if self._per_second > 0:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(max(1.0, self._per_second), self._tokens + gained)
            self._filled_at = now
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
        self._running += 1
        return True

    def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            if self._queue[0].done():  # given up, and not yet taken out
                self._queue.popleft()
            elif self._take(loop.time()):
                self._queue.popleft().set_result(None)
            else:
                break
        if self._queue and self._per_second > 0 and self._timer is None:
            wait_s = max(0.0, 1.0 - self._tokens) / self._per_second
            self._timer = loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._serve()
