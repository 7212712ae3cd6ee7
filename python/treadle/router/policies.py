"""The policies by name. Each is pure; what is random is a generator that was given.

`session` is in `affinity.py`. The others are those that other routers have; `session` uses one of
them for requests without a key. None ever chooses a replica that is not eligible or was tried.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from .affinity import AffinityRules, Ask, Choice, Decision, Policy, SessionAffinity
from .fleet import Fleet
from .keys import hash_key
from .pins import Pins
from .prefix_index import PrefixIndex

NAMES = (
    "session",
    "cache_aware",
    "power_of_two",
    "round_robin",
    "random",
    "consistent_hashing",
    "manual",
)
KEYLESS_NAMES = ("power_of_two", "cache_aware", "round_robin", "random")
ASSIGNMENTS = ("random", "min_load", "min_group")


@dataclass(frozen=True, slots=True)
class PolicyRules:
    name: str = "session"
    keyless: str = "power_of_two"  # of `session`, for requests without a key
    affinity: AffinityRules = field(default_factory=AffinityRules)
    cache_threshold: float = 0.3  # share of a prompt that must match
    balance_abs: int = 64  # requests between the busiest and the idlest replica, and
    balance_rel: float = 1.5  # their ratio: above both the shortest queue is chosen
    tree_bytes: int = 1 << 26
    tree_ttl_s: float = 600.0
    assignment: str = "random"  # of `manual`: one of ASSIGNMENTS
    max_idle_s: float = 14400.0  # of `manual`: until a key is forgotten


def make_policy(rules: PolicyRules, rng: random.Random) -> Policy:
    if rules.name == "session":
        keyless = _plain(rules.keyless, rules, rng)
        return SessionAffinity(rules.affinity, keyless)
    if rules.name == "manual":
        return Manual(rules, rng)
    return _plain(rules.name, rules, rng)


def _plain(name: str, rules: PolicyRules, rng: random.Random) -> Policy:
    if name == "cache_aware":
        return CacheAware(rules, rng)
    if name == "round_robin":
        return RoundRobin()
    if name == "random":
        return Uniform(rng)
    if name == "consistent_hashing":
        return ConsistentHashing(rng)
    assert name == "power_of_two", name
    return PowerOfTwo(rng)


def _label(ask: Ask) -> Decision:
    """Of a choice that nothing but load or chance has made."""
    return Decision.FAILOVER if ask.failed else Decision.KEYLESS


class _Stateless:
    num_entries = 0


class PowerOfTwo(_Stateless):
    """The less loaded of two: near the least loaded, without all routers running to one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        names = fleet.eligible(ask.without)
        if not names:
            return None
        pair = self._rng.sample(names, min(2, len(names)))
        return Choice(min(pair, key=fleet.load), _label(ask))


class Uniform(_Stateless):
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        names = fleet.eligible(ask.without)
        return Choice(self._rng.choice(names), _label(ask)) if names else None


class RoundRobin(_Stateless):
    def __init__(self) -> None:
        self._turn = 0

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        names = fleet.eligible(ask.without)
        if not names:
            return None
        self._turn += 1
        return Choice(names[(self._turn - 1) % len(names)], _label(ask))


class ConsistentHashing(_Stateless):
    """By key alone, load has no say; keyless requests by their text, or by chance without one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        key = ask.key
        if key is None:
            key = hash_key("", "text", ask.text) if ask.text else self._rng.getrandbits(64)
        home = fleet.first(key)
        name = home if home not in ask.without else fleet.first(key, ask.without)
        if name is None:
            return None
        if name != home:
            return Choice(name, Decision.FAILOVER)
        return Choice(name, Decision.KEYLESS if ask.key is None else Decision.PINNED)


class CacheAware:
    """Where most of the prompt was sent before, if that is enough of it and load permits."""

    def __init__(self, rules: PolicyRules, rng: random.Random) -> None:
        self._rules = rules
        self._index = PrefixIndex(rules.tree_bytes, rules.tree_ttl_s)
        self._fallback = PowerOfTwo(rng)

    @property
    def num_entries(self) -> int:
        return len(self._index)

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        names = fleet.eligible(ask.without)
        if not names:
            return None
        choice = self._matching(ask, fleet, names, now) or self._fallback.choose(ask, fleet, now)
        if choice is not None:
            self._index.insert(ask.text, choice.replica, now)
        return choice

    def _matching(self, ask: Ask, fleet: Fleet, names: list[str], now: float) -> Choice | None:
        if self._is_unbalanced(fleet, names):
            shortest = min(names, key=lambda name: (fleet.requests(name), fleet.load(name)))
            return Choice(shortest, _label(ask))
        matches = self._index.match(ask.text, names, now)
        best = max(names, key=lambda name: (matches[name], -fleet.load(name)))
        is_enough = matches[best] > self._rules.cache_threshold * len(ask.text)
        if not is_enough or fleet.is_over(best):
            return None
        return Choice(best, Decision.FAILOVER if ask.failed else Decision.CACHE, matches[best])

    def _is_unbalanced(self, fleet: Fleet, names: Collection[str]) -> bool:
        counts = [fleet.requests(name) for name in names]
        most, least = max(counts), min(counts)
        rules = self._rules
        return most - least > rules.balance_abs and most > rules.balance_rel * least


class Manual:
    """A key stays where it was put until that replica is gone, whatever the load."""

    def __init__(self, rules: PolicyRules, rng: random.Random) -> None:
        self._assignment = rules.assignment
        self._rng = rng
        self._pins = Pins(rules.max_idle_s, rules.affinity.capacity)

    @property
    def num_entries(self) -> int:
        return len(self._pins)

    def choose(self, ask: Ask, fleet: Fleet, now: float) -> Choice | None:
        names = fleet.eligible(ask.without)
        if not names:
            return None
        if ask.key is None:
            return Choice(self._rng.choice(names), _label(ask))
        pin = self._pins.use(ask.key, now)
        if pin is not None and pin.replica in names:
            known, pin.prompt_bytes = min(pin.prompt_bytes, ask.prompt_bytes), ask.prompt_bytes
            return Choice(pin.replica, Decision.PINNED, known)
        name = self._assign(fleet, names)
        self._pins.put(ask.key, name, now).prompt_bytes = ask.prompt_bytes
        return Choice(name, Decision.NEW if pin is None else Decision.FAILOVER)

    def _assign(self, fleet: Fleet, names: list[str]) -> str:
        if self._assignment == "min_load":
            return min(names, key=fleet.load)
        if self._assignment == "min_group":
            counts = self._pins.counts()
            return min(names, key=lambda name: counts.get(name, 0))
        return self._rng.choice(names)
