"""Server-side sessions: which replica holds the state of which. Pure.

Their state lives on one replica only, so affinity is hard: no expiry here before the session is
closed, no spill. When the replica is lost, or was restarted and forgot, the next call is told so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class ServerSessions:
    def __init__(self, capacity: int = 1_000_000) -> None:
        self._capacity = capacity
        self._replicas: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._replicas)

    def opened(self, session: str, replica: str) -> None:
        self._replicas[session] = replica
        while len(self._replicas) > self._capacity:
            self._replicas.popitem(last=False)

    def closed(self, session: str) -> None:
        self._replicas.pop(session, None)

    def replica_of(self, session: str) -> str | None:
        return self._replicas.get(session)

    def lose(self, is_alive: Callable[[str], bool]) -> int:
        """Forgets those whose replica is gone; gives their number."""
        lost = [session for session, name in self._replicas.items() if not is_alive(name)]
        for session in lost:
            del self._replicas[session]
        return len(lost)
