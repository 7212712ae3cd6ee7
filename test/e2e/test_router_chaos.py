"""Replicas are killed and come back while sessions go on; at the end one is drained.

`--chaos-seconds 180 --chaos-sessions 60` is the full length. Closed loops: a session asks its next
turn when it has the last one, or when that has broken. What is checked for every turn:

    no byte had come      it is answered in whole, by whoever (never lost)
    bytes had come        it is whole, or ends in one error event because its replica was killed
    another replica       its own was killed since, or it was over its load bound (spill)
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from test.e2e.fleet import Fleet, Turn
from test.e2e.server import WAIT_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BETWEEN_KILLS_S = 10.0
LEAST_TURNS = 5


class Session:
    def __init__(self, name: str, kills: dict[str, float], kept: Counter[str]) -> None:
        self.name = name
        self._kills = kills
        self._kept = kept
        self.has_home = asyncio.Event()
        self._home = ""
        self._home_at = 0.0

    @property
    def home(self) -> str:
        return self._home

    async def run(self, http: httpx.AsyncClient, until: float, rng: random.Random) -> None:
        for number in itertools.count():
            began = time.monotonic()
            if began >= until and number >= LEAST_TURNS:
                return
            prompt = f"{self.name}: the thread and the loom " + "weaves " * min(20, number)
            turn = await Turn().run(http, self.name, prompt=prompt, max_tokens=rng.randint(5, 60))
            self._check(turn, began)
            self.has_home.set()

    def _check(self, turn: Turn, began: float) -> None:
        assert turn.status == 200, f"{self.name} lost: {turn.status}"
        was_killed = self._kills.get(turn.replica, -1.0) >= began
        if not turn.is_whole:
            assert was_killed and turn.num_events > 1, vars(turn)
            assert turn.has_error and not turn.is_done and not turn.is_cut
        if self._home and turn.replica != self._home:
            had_to = self._kills.get(self._home, -1.0) >= self._home_at
            assert had_to or turn.decision == "spill", (turn.decision, self.name)
        self._kept["broken" if turn.has_error else "whole"] += 1
        self._kept[turn.decision] += 1
        if turn.decision != "spill":
            self._home, self._home_at = turn.replica, began
        else:
            self._home = ""  # it may stay there, or go back


async def kill_and_restart(
    fleet: Fleet,
    sessions: list[Session],
    kills: dict[str, float],
    kept: Counter[str],
    until: float,
) -> None:
    """First the replica of most sessions, whichever that is: they hash by its port."""
    await asyncio.gather(*(session.has_home.wait() for session in sessions))
    homes = Counter(session.home for session in sessions)
    victims = itertools.cycle(sorted(fleet.servers, key=lambda url: -homes[url]))
    while time.monotonic() < until:
        began = time.monotonic()
        victim = next(victims)
        kills[victim] = math.inf  # it begins to break what runs before all of it is dead
        await asyncio.to_thread(fleet.kill, victim)
        kills[victim] = time.monotonic()
        kept["kills"] += 1
        await asyncio.to_thread(fleet.restart, victim)
        await asyncio.to_thread(fleet.wait_serving, victim)
        await asyncio.sleep(max(0.0, BETWEEN_KILLS_S - (time.monotonic() - began)))


async def test_no_request_is_lost_and_no_session_moves_without_need(
    tmp_path: Path, request: pytest.FixtureRequest
):
    seconds: float = request.config.getoption("--chaos-seconds")
    count: int = request.config.getoption("--chaos-sessions")
    fleet = await asyncio.to_thread(Fleet, tmp_path, 3)
    try:
        kills: dict[str, float] = {}
        kept: Counter[str] = Counter()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=fleet.url, timeout=WAIT_S, limits=limits) as http:
            until = time.monotonic() + seconds
            sessions = [Session(f"s{i}", kills, kept) for i in range(count)]
            loops = [session.run(http, until, random.Random(session.name)) for session in sessions]
            await asyncio.gather(*loops, kill_and_restart(fleet, sessions, kills, kept, until))
            drained = list(fleet.servers)[0]
            last = [
                asyncio.create_task(Turn().run(http, session.name, max_tokens=60))
                for session in sessions
            ]
            await asyncio.sleep(0.1)
            assert (await http.delete(f"/workers/{drained}")).status_code == 202
            assert all(turn.is_whole for turn in await asyncio.gather(*last))
        print("chaos:", dict(kept))  # noqa: T201
        assert kept["failover"] > 0 and kept["pinned"] > kept["failover"]
    finally:
        fleet.close()
