"""Asks replicas whether they take requests, and how busy they are. I/O only; `Life` judges.

A replica that is not ready, or that a request found odd, is asked every second, others every
`interval_s`. Nothing here generates: a server that is busy with a long prompt must not be asked to
prove itself by another. An answer of 503 is a replica's own word that it starts or drains.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import orjson

from ..srt.log import event
from .ledger import LoadRules, reported_tokens
from .lifecycle import Probe, State
from .metrics import RouterMetrics
from .replicas import Replica, Replicas
from .upstream import Broken, Upstream

TICK_S = 1.0
FALLBACK = "/health"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeRules:
    endpoint: str = "/ready"
    timeout_s: float = 5.0
    interval_s: float = 10.0
    load_interval_s: float = 10.0


class Prober:
    """One task; a round asks all that are due at the same time."""

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
        self._asked_at: dict[str, float] = {}
        self._loads_at: dict[str, float] = {}
        self._endpoints: dict[str, str] = {}

    async def run(self) -> None:
        while True:
            await self.round(time.monotonic())
            await asyncio.sleep(TICK_S)

    async def round(self, now: float) -> None:
        """Every replica that is due at `now`."""
        names = {replica.name for replica in self._replicas}
        for known in (self._asked_at, self._loads_at):
            for name in known.keys() - names:
                del known[name]
        due = [r for r in self._replicas if self._is_due(r, now)]
        busy = [r for r in self._replicas if self._wants_load(r, now)]
        await asyncio.gather(*map(self.probe, due), *map(self.read_load, busy))

    async def probe(self, replica: Replica) -> None:
        replica.wants_probe = False
        before = replica.life.state
        result = await self._ask(replica)
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

    def _is_due(self, replica: Replica, now: float) -> bool:
        is_calm = replica.life.state is State.READY and not replica.wants_probe
        interval_s = self._rules.interval_s if is_calm else TICK_S
        if now - self._asked_at.get(replica.name, -1e9) < interval_s - TICK_S / 2:
            return False
        self._asked_at[replica.name] = now
        return True

    def _wants_load(self, replica: Replica, now: float) -> bool:
        since = now - self._loads_at.get(replica.name, -1e9)
        if replica.life.state is not State.READY or since < self._rules.load_interval_s:
            return False
        self._loads_at[replica.name] = now
        return True

    async def _ask(self, replica: Replica) -> Probe:
        path = self._endpoints.get(replica.name, self._rules.endpoint)
        timeout_s = self._rules.timeout_s
        try:
            status, _ = await self._upstream.ask(replica, "GET", path, timeout_s=timeout_s)
            if status == 404 and path != FALLBACK:
                self._endpoints[replica.name] = FALLBACK
                status, _ = await self._upstream.ask(replica, "GET", FALLBACK, timeout_s=timeout_s)
        except Broken:
            return Probe.FAILED
        if status == 503:
            return Probe.NOT_READY
        return Probe.READY if status < 400 else Probe.FAILED


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
