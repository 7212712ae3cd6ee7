"""Asks replicas whether they take requests, and how busy they are. I/O only; `Life` judges.

A replica that is not ready, or that a request found odd, is asked every second, others every
`interval_s`. Nothing here generates: a server that is busy with a long prompt must not be asked to
prove itself by another. An answer of 503 is a replica's own word that it starts or drains.

Each question is a task of its own, so that one replica's silence delays nobody else's; a replica is
not asked again before it has answered or its time is over. Loads are polled, not pushed: between
two polls the ledger counts what this router sends, and a push needs replicas that know routers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass

import orjson

from ..srt.log import event
from .ledger import LoadRules, reported_tokens
from .lifecycle import Probe, State
from .metrics import RouterMetrics
from .outcomes import Broken
from .replicas import Replica, Replicas
from .upstream import Upstream

TICK_S = 1.0
FALLBACK = "/health"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeRules:
    endpoint: str = "/ready"
    timeout_s: float = 5.0
    interval_s: float = 10.0
    load_interval_s: float = 10.0


@dataclass(slots=True, eq=False)
class _Asking:
    """One kind of question to one replica: when it was asked last, and whether that is open."""

    asked_at: float = -math.inf
    is_open: bool = False


class Prober:
    def __init__(
        self,
        replicas: Replicas,
        upstream: Upstream,
        metrics: RouterMetrics,
        rules: ProbeRules,
        load: LoadRules,
    ) -> None:
        self._replicas = replicas
        self._upstream = upstream
        self._metrics = metrics
        self._rules = rules
        self._load = load
        self._probes: dict[str, _Asking] = {}
        self._loads: dict[str, _Asking] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                for question in self.due(time.monotonic()):
                    tasks.create_task(question)
                await asyncio.sleep(TICK_S)

    def due(self, now: float) -> list[Coroutine[object, object, None]]:
        """The questions that are due at `now`, to be run; they then count as asked."""
        names = {replica.name for replica in self._replicas}
        for known in (self._probes, self._loads):
            for name in known.keys() - names:
                del known[name]
        found = []
        for replica in self._replicas:
            probe = self._probes.setdefault(replica.name, _Asking())
            if self._wants_probe(replica, probe, now):
                found.append(_ask(probe, self.probe, replica, now))
            load = self._loads.setdefault(replica.name, _Asking())
            if self._wants_load(replica, load, now):
                found.append(_ask(load, self.read_load, replica, now))
        return found

    async def probe(self, replica: Replica) -> None:
        replica.wants_probe = False
        before = replica.life.state
        result = await self._result(replica)
        self._replicas.probed(replica.name, result, time.monotonic())
        self._metrics.probed(replica.name, result.value)
        if replica.life.state is not before:
            fields = {"replica": replica.name, "from": before.value}
            log.info(event("replica_state", {**fields, "to": replica.life.state.value}))

    async def read_load(self, replica: Replica) -> None:
        """Corrects the counted load; a replica that does not tell has it as counted."""
        ledger = self._replicas.ledger
        number = ledger.number
        try:
            path = "/v1/loads"
            status, body = await self._upstream.ask(
                replica, "GET", path, timeout_s=self._rules.timeout_s
            )
        except Broken:
            return
        tokens = _total(body, replica, self._load) if status == 200 else None
        if tokens is not None:
            ledger.report(replica.name, tokens, number)

    def _wants_probe(self, replica: Replica, last: _Asking, now: float) -> bool:
        is_calm = replica.life.state is State.READY and not replica.wants_probe
        interval_s = self._rules.interval_s if is_calm else TICK_S
        return not last.is_open and now - last.asked_at >= interval_s - TICK_S / 2

    def _wants_load(self, replica: Replica, last: _Asking, now: float) -> bool:
        is_late = now - last.asked_at >= self._rules.load_interval_s
        return replica.life.state is State.READY and is_late and not last.is_open

    async def _result(self, replica: Replica) -> Probe:
        """A 404 is of this moment: the next probe asks for readiness again."""
        rules = self._rules
        try:
            async with asyncio.timeout(rules.timeout_s):
                status = await self._status(replica, rules.endpoint)
                if status == 404 and rules.endpoint != FALLBACK:
                    status = await self._status(replica, FALLBACK)
        except (Broken, TimeoutError):
            return Probe.FAILED
        if status == 503:
            return Probe.NOT_READY
        return Probe.READY if status < 400 else Probe.FAILED

    async def _status(self, replica: Replica, path: str) -> int:
        """Raises Broken."""
        timeout_s = self._rules.timeout_s
        return (await self._upstream.ask(replica, "GET", path, timeout_s=timeout_s))[0]


def _ask(
    asking: _Asking, question: Callable[[Replica], Awaitable[None]], replica: Replica, now: float
) -> Coroutine[object, object, None]:
    """Books the question before it runs, so that a late start asks nobody twice."""
    asking.asked_at, asking.is_open = now, True

    async def run() -> None:
        try:
            await question(replica)
        finally:
            asking.is_open = False

    return run()


def _total(body: bytes, replica: Replica, rules: LoadRules) -> float | None:
    """Of all ranks, or of the rank that the replica is."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    loads = found.get("loads") if isinstance(found, dict) else None
    if not isinstance(loads, list):
        return None
    rank = replica.address.rank
    own = [x for x in loads if isinstance(x, dict) and rank in (None, x.get("dp_rank"))]
    values = [reported_tokens(entry, rules) for entry in own]
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
