"""Variables of a program as promises: a cell is there as soon as its generation was appended, and
full once it has run. Reading waits for exactly one cell, from any thread or loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ..client.background import background
from ..client.errors import ProgramError


@dataclass(slots=True, eq=False)
class Cell:
    """Filled on the background loop. `meta`: facts of the generation, a list of them for n > 1."""

    value: Any = None
    meta: Any = None
    error: Exception | None = None
    done: Future[None] = field(default_factory=Future)

    def fill(self, value: Any, meta: Any = None) -> None:
        self.value, self.meta = value, meta
        self._settle()

    def fail(self, error: Exception) -> None:
        """No effect on a full cell."""
        if not self.done.done():
            self.error = error
            self._settle()

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def get(self) -> Any:
        """Of a full cell. Raises what its generation raised."""
        if self.error is not None:
            raise self.error
        return self.value


def full(value: Any, meta: Any = None) -> Cell:
    cell = Cell()
    cell.fill(value, meta)
    return cell


def wait(done: Future[Any], home: asyncio.AbstractEventLoop | None, how: str) -> None:
    """Blocks the thread. `home`: the loop of the program, if it is a coroutine; on it, and on the
    background loop, blocking would wait for itself: ProgramError, which says `how` instead."""
    if done.done():
        return
    if background().is_here() or (home is not None and home is _running()):
        raise ProgramError(f"this would block the loop that the program runs on: {how}")
    done.result()


async def settled(done: Future[None]) -> None:
    """Waits from a coroutine, on any loop. Who gives up leaves `done` to the others, where
    `asyncio.wrap_future` would cancel it for all."""
    home, told = asyncio.get_running_loop(), asyncio.Event()

    def tell(done: Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            home.call_soon_threadsafe(told.set)

    if not done.done():
        done.add_done_callback(tell)
        await told.wait()


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
