"""Requests that are in this router now, by id: where each is, and how to end it from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..srt.errors import TreadleError


@dataclass(slots=True, eq=False)
class Flight:
    """`replica` "": it is at none now. `ended_by`: why it was ended from outside."""

    rids: tuple[str, ...]
    task: asyncio.Task[object]
    replica: str = ""
    ended_by: TreadleError | None = None
    is_client_gone: bool = False

    def end(self, error: TreadleError) -> None:
        """Wakes its task, which answers the client with `error`."""
        if self.ended_by is None and not self.is_client_gone:
            self.ended_by = error
            self.task.cancel()

    def leave(self) -> None:
        """The client is gone."""
        if self.ended_by is None and not self.is_client_gone:
            self.is_client_gone = True
            self.task.cancel()

    @property
    def is_ended(self) -> bool:
        return self.is_client_gone or self.ended_by is not None


@dataclass(slots=True, eq=False)
class Inflight:
    _flights: dict[str, Flight] = field(default_factory=dict)
    _all: set[Flight] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._all))

    def enter(self, flight: Flight) -> None:
        self._all.add(flight)
        for rid in flight.rids:
            self._flights.setdefault(rid, flight)

    def leave(self, flight: Flight) -> None:
        self._all.discard(flight)
        for rid in flight.rids:
            if self._flights.get(rid) is flight:
                del self._flights[rid]

    def find(self, rid: str) -> Flight | None:
        return self._flights.get(rid)

    def at(self, replica: str) -> list[Flight]:
        return [flight for flight in self._all if flight.replica == replica]

    def free_name(self, rid: str) -> str:
        """`rid`, or one made from it when that is in use here."""
        name, count = rid, 1
        while name in self._flights:
            count += 1
            name = f"{rid}~{count}"
        return name
