"""Who sends what when: copies of a trace's sessions, each with a key and ids of its own.

A turn is sent at its recorded time (times the time scale), but never before the turn that it goes
on from was answered.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.bench.traces import Session, Speller, Turn
from treadle.router.keys import hash_key


@dataclass(frozen=True, slots=True)
class Pace:
    """`arrival_s`: sessions that have no time of their own begin evenly spread over it."""

    time_scale: float
    arrival_s: float
    seed: int


class Clients:
    """Client `n` plays the trace's session `n % len(sessions)` in an order that `seed` shuffles."""

    def __init__(self, sessions: Sequence[Session], count: int, pace: Pace) -> None:
        rng = random.Random(pace.seed)
        order = list(range(len(sessions)))
        rng.shuffle(order)
        self._sessions = [sessions[i] for i in order]
        self._speller = Speller()
        self._time_scale = pace.time_scale
        self._starts = array("d", (self._start(n, pace, rng) for n in range(count)))

    def __len__(self) -> int:
        return len(self._starts)

    def session(self, client: int) -> Session:
        return self._sessions[client % len(self._sessions)]

    def key(self, client: int) -> int:
        """What the router makes of the session's header."""
        return hash_key("", "session", self.session_id(client).encode())

    def session_id(self, client: int) -> str:
        return f"{self.session(client).key}/{self._copy(client)}"

    def first_turns(self, client: int) -> list[tuple[float, int]]:
        """(time, turn) of those that wait for no other."""
        return [(self._due(client, i), i) for i in self.session(client).followers.get(-1, ())]

    def next_turns(self, client: int, turn: int, now: float) -> list[tuple[float, int]]:
        """Those that waited for `turn`, which was answered at `now`."""
        waiting = self.session(client).followers.get(turn, ())
        return [(max(now, self._due(client, i)), i) for i in waiting]

    def turn(self, client: int, turn: int) -> Turn:
        return self.session(client).turns[turn]

    def ids(self, client: int, turn: int) -> array[int]:
        """Of prompt and output."""
        return self._speller.ids(self.turn(client, turn), self._copy(client))

    def _copy(self, client: int) -> int:
        return client // len(self._sessions)

    def _due(self, client: int, turn: int) -> float:
        at_s = self.turn(client, turn).at_s - self.turn(client, 0).at_s
        return self._starts[client] + at_s * self._time_scale

    def _start(self, client: int, pace: Pace, rng: random.Random) -> float:
        start_s = self._sessions[client % len(self._sessions)].start_s
        if start_s is None:
            return rng.random() * pace.arrival_s
        return start_s * pace.time_scale
