"""Session affinity: session -> replica, and when load overrides it. Pure: no clock, no I/O.

    known key -> its replica while that is ready                                        pinned
              -> elsewhere for once, when its replica is over its bound and the other is
                 lower by the gap, and by more than it costs to run the known part of
                 the prompt there again; for good when that happens twice running        spill
              -> elsewhere for good, when its replica is gone, draining or failed        failover
    new key   -> where its parent session is, unless over its bound                      cache
              -> the first replica in the order of its parent's key, or of its own,
                 that is within the bound                                                new
    no key    -> left to another policy                                                  keyless

The router and the fleet simulator run this file. `Fleet` carries loads and who is eligible.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from .fleet import Fleet
from .ledger import BYTES_PER_TOKEN
from .pins import Pin, Pins


class Decision(StrEnum):
    PINNED = "pinned"
    NEW = "new"
    SPILL = "spill"
    FAILOVER = "failover"
    KEYLESS = "keyless"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to be placed. `failed` and `busy` are replicas that were tried for it: the first
    broke, the second did not admit it. `text` is what a cache-aware policy compares.
    """

    key: int | None = None
    parent: int | None = None
    prompt_bytes: int = 0
    text: bytes = b""
    failed: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()

    @property
    def without(self) -> frozenset[str]:
        return self.failed | self.busy


@dataclass(frozen=True, slots=True)
class Choice:
    """`known_bytes`: how much of the prompt the replica has probably seen before."""

    replica: str
    decision: Decision
    known_bytes: int = 0


class Policy(Protocol):
    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        """None: no replica is eligible. `now`: seconds of a clock that does not jump."""
        ...

    @property
    def num_entries(self) -> int:
        """Sessions or prefixes that it remembers."""
        ...


@dataclass(frozen=True, slots=True)
class AffinityRules:
    ttl_s: float = 600.0
    capacity: int = 1_000_000
    max_spills: int = 2  # times running, then the key moves
    move_cost: float = 4.0  # of a token that is run again elsewhere, where others wait for it too


class SessionAffinity:
    """The policy `session`."""

    def __init__(self, rules: AffinityRules, keyless: Policy) -> None:
        self._rules = rules
        self._keyless = keyless
        self._pins = Pins(rules.ttl_s, rules.capacity)

    @property
    def num_entries(self) -> int:
        return len(self._pins)

    def replica_of(self, key: int, now: float) -> str | None:
        """Where a key is pinned."""
        pin = self._pins.peek(key, now)
        return None if pin is None else pin.replica

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        if ask.key is None:
            return self._keyless.choose(ask, fleet, now)
        pin = self._pins.use(ask.key, now)
        if pin is None:
            return self._start(ask, ask.key, fleet, now)
        if not fleet.is_eligible(pin.replica) or pin.replica in ask.failed:
            return self._move(ask, ask.key, fleet, now)
        other = self._alternative(ask, ask.key, pin, fleet)
        if other is not None:
            return self._spill(ask, pin, other)
        if pin.replica in ask.busy:
            return None
        known = min(pin.prompt_bytes, ask.prompt_bytes)
        pin.spills = 0
        pin.prompt_bytes = ask.prompt_bytes
        return Choice(pin.replica, Decision.PINNED, known)

    def _start(self, ask: Ask, key: int, fleet: Fleet, now: float) -> Choice | None:
        home = None if ask.parent is None else self._pins.peek(ask.parent, now)
        if home is not None and _has_room(home.replica, ask, fleet):
            known = min(home.prompt_bytes, ask.prompt_bytes)
            self._pin(key, home.replica, ask, now)
            return Choice(home.replica, Decision.CACHE, known)
        # A parent that another router has placed began where its own key says.
        name = fleet.place(key if ask.parent is None else ask.parent, ask.without)
        if name is None:
            return None
        self._pin(key, name, ask, now)
        return Choice(name, Decision.FAILOVER if ask.failed else Decision.NEW)

    def _move(self, ask: Ask, key: int, fleet: Fleet, now: float) -> Choice | None:
        name = fleet.place(key, ask.without)
        if name is None:
            return None  # the pin stays: its replica may come back before another is there
        self._pin(key, name, ask, now)
        return Choice(name, Decision.FAILOVER)

    def _alternative(self, ask: Ask, key: int, pin: Pin, fleet: Fleet) -> str | None:
        """Where to go instead of the pinned replica, None to stay."""
        if pin.replica in ask.busy:
            return fleet.place(key, ask.without)
        known = min(pin.prompt_bytes, ask.prompt_bytes) / BYTES_PER_TOKEN
        highest = fleet.load(pin.replica) - max(fleet.gap, self._rules.move_cost * known)
        if highest < 0 or not fleet.is_over(pin.replica):
            return None
        other = fleet.place(key, {*ask.without, pin.replica})
        return other if other is not None and fleet.load(other) <= highest else None

    def _spill(self, ask: Ask, pin: Pin, other: str) -> Choice:
        pin.spills += 1
        if pin.spills >= self._rules.max_spills:
            pin.replica, pin.spills = other, 0
            pin.prompt_bytes = ask.prompt_bytes
        return Choice(other, Decision.SPILL)

    def _pin(self, key: int, replica: str, ask: Ask, now: float) -> None:
        self._pins.put(key, replica, now).prompt_bytes = ask.prompt_bytes


def _has_room(replica: str, ask: Ask, fleet: Fleet) -> bool:
    is_usable = fleet.is_eligible(replica) and replica not in ask.without
    return is_usable and not fleet.is_over(replica)
