"""The stream of one HTTP request: the deltas of all its choices, merged in order of arrival.

Owns the queue between the receive loop and the request's handler. It ends by itself after the last
choice, or by `close`, after which the scheduler is told to drop whatever still runs. An error ends
it for all choices, once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ..errors import TreadleError
from .choice import Choice, Delta
from .stats import Meter


class Generation:
    """Use as `async for delta in generation`, and `close` it in any case.

    One reader at a time. `names` and `num_live` belong to the frontend's table.
    """

    def __init__(
        self,
        rid: str,
        choices: tuple[Choice, ...],
        meter: Meter,
        on_close: Callable[[Generation], None],
    ) -> None:
        self.rid = rid
        self.choices = choices
        self.meter = meter
        self.names: set[str] = set()
        self.num_live = len(choices)
        self._items: deque[Delta | TreadleError] = deque()
        self._reader: asyncio.Future[None] | None = None  # waits for an item
        self._num_open = len(choices)
        self._on_close: Callable[[Generation], None] | None = on_close

    def put(self, item: Delta | TreadleError) -> None:
        """For the receive loop; never waits."""
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Delta:
        """Raises what ended the request early: WorkerLost, Overloaded, BadRequest."""
        if self._num_open == 0 or self._on_close is None:
            raise StopAsyncIteration
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        item = self._items.popleft()
        if isinstance(item, TreadleError):
            self.close()
            raise item
        if item.ending is not None:
            self._num_open -= 1
        return item

    @property
    def has_delta(self) -> bool:
        """Whether the next delta is there already."""
        return bool(self._items) and isinstance(self._items[0], Delta)

    def close(self) -> None:
        """Aborts the choices that still run. Does nothing the second time."""
        if self._on_close is not None:
            on_close, self._on_close = self._on_close, None
            on_close(self)
