"""What happens on a branch, as values, for whoever watches it while it runs.

An `EventLog` only grows; any number of readers follow it, each from the start, and none of them
slows the branch. It lives on the background loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from .tools import ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class TextEvent:
    """Text that was appended: by the program when `name` is None, else generated for it.

    >>> tr.TextEvent("Par", "city").text
    'Par'
    """

    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ReasoningEvent:
    """Reasoning of the model before its answer.

    >>> tr.ReasoningEvent("I need", "city").name
    'city'
    """

    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A tool is about to run.

    >>> tr.CallEvent(tr.ToolCall("c1", "now", "{}"), "answer").call.name
    'now'
    """

    call: ToolCall
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ResultEvent:
    """A tool has run; `seconds` it took.

    >>> call = tr.ToolCall("c1", "now", "{}")
    >>> tr.ResultEvent(call, tr.ToolResult("noon"), 0.1).result.content
    'noon'
    """

    call: ToolCall
    result: ToolResult
    seconds: float
    name: str | None = None


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """A turn of an agent has ended: its number from 1, and whether it is the last.

    >>> tr.TurnEvent(1, False).turn
    1
    """

    turn: int
    is_last: bool
    name: str | None = None


Event = TextEvent | ReasoningEvent | CallEvent | ResultEvent | TurnEvent


@dataclass(slots=True, eq=False)
class EventLog:
    """`is_kept` False keeps nothing, so a run that nobody watches costs no memory."""

    is_kept: bool
    events: list[Event] = field(default_factory=list)
    is_closed: bool = False
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        if self.is_kept:
            self.events.append(event)
            self.wake()

    def close(self) -> None:
        self.is_closed = True
        self.wake()

    def wake(self) -> None:
        """Readers look again whether they have all they wait for."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def follow(self, has_all: Callable[[], bool] = lambda: False) -> AsyncIterator[Event]:
        """All events, from the first; ends when the log is closed, or none is left and the reader
        `has_all` it waits for."""
        position = 0
        while True:
            while position < len(self.events):
                position += 1
                yield self.events[position - 1]
            if self.is_closed or has_all():
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
