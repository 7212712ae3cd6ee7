"""The router's own code without its network: choice, load, health, retries of simulated requests.

`Replicas` (life, breaker, weights), `Fleet`, `Ledger`, the policies and the retry budget are those
that the router runs. Only the loop over attempts is written again, by the same table: a replica
that refuses a connection has failed, and the request goes elsewhere once.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from treadle.router.affinity import Ask, Decision
from treadle.router.fleet import Fleet
from treadle.router.ledger import LoadRules, Ticket, reported_tokens
from treadle.router.lifecycle import LifeRules, Probe
from treadle.router.outcomes import Evidence, RetryBudget
from treadle.router.policies import PolicyRules, make_policy
from treadle.router.replicas import Address, Replicas

MAX_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Placed:
    replica: int
    decision: Decision
    ticket: Ticket


class Router:
    def __init__(self, names: Sequence[str], policy: PolicyRules, seed: int) -> None:
        """`names`: addresses of replicas, which are ready."""
        self.fleet = Fleet()
        self.compares = policy.name == "cache_aware"  # all requests have keys
        self.lost = 0  # requests that could not be tried again
        self._load = LoadRules()
        self._replicas = Replicas(self.fleet, LifeRules(), self._load)
        self._numbers: dict[str, int] = {}
        for number, name in enumerate(names):
            self._replicas.add(Address.parse(name), is_first=True)
            self._replicas.probed(name, Probe.READY, 0.0)
            self._numbers[name] = number
        self._names = list(names)
        self._policy = make_policy(policy, random.Random(seed))
        self._budget = RetryBudget()

    def place(self, ask: Ask, dead: Container[int], now: float) -> Placed | None:
        """None: the client gets an error. `dead`: replicas that refuse connections. Those that
        `ask` has failed at count as attempts."""
        if not ask.failed:
            self._budget.arrived()
        while len(ask.failed) < MAX_ATTEMPTS:
            choice = self._policy.choose(ask, self.fleet, now)
            if choice is None:
                break
            number = self._numbers[choice.replica]
            if number not in dead:
                ledger = self._replicas.ledger
                ticket = ledger.open(choice.replica, ask.prompt_bytes, choice.known_bytes)
                return Placed(number, choice.decision, ticket)
            self.broke(number, now)
            ask = replace(ask, failed=ask.failed | {choice.replica})
            if len(ask.failed) < MAX_ATTEMPTS and not self._budget.take():
                break
        self.lost += 1
        return None

    def may_retry(self) -> bool:
        """For a request whose replica died before its first byte."""
        return self._budget.take()

    def name(self, number: int) -> str:
        return self._names[number]

    def broke(self, number: int, now: float) -> None:
        """A connection was refused, or broke."""
        self._replicas.note(self._names[number], Evidence.FAILURE, now)

    def answered(self, placed: Placed, now: float) -> None:
        """The headers, then the first byte."""
        self._replicas.note(self._names[placed.replica], Evidence.SUCCESS, now)
        self._replicas.ledger.answered(placed.ticket)

    def ended(self, placed: Placed) -> None:
        self._replicas.ledger.close(placed.ticket)

    def probe_failed(self, number: int, now: float) -> None:
        self._replicas.probed(self._names[number], Probe.FAILED, now)

    def report(self, number: int, running: int, waiting: int, uncached: float) -> None:
        """What a poll of `/v1/loads` reads."""
        load: dict[str, object] = {"num_running_reqs": running, "num_waiting_reqs": waiting}
        tokens = reported_tokens(load | {"num_uncached_tokens": uncached}, self._load)
        assert tokens is not None
        ledger = self._replicas.ledger
        ledger.report(self._names[number], tokens, ledger.number)
