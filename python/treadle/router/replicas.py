"""The replicas that a router knows: address, life, load. Pure: time is an argument.

A replica's name is its address, so every router and every restart calls it the same, and its hash
is the same. An address may end in `@RANK`: one data-parallel rank of a server, which is a replica
of its own here. `refresh` writes the weights that follow from life and time into the `Fleet`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .fleet import Fleet
from .keys import hash_key
from .ledger import Ledger, LoadRules
from .lifecycle import Life, LifeRules, Probe, State
from .outcomes import Evidence

_ADDRESS = re.compile(r"(https?://[^\s/@?#]+(?:/[^\s@?#]*)?)(?:@(\d{1,4}))?")


@dataclass(frozen=True, slots=True)
class Address:
    url: str  # without a slash at the end
    rank: int | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError."""
        given = text.strip()
        found = _ADDRESS.fullmatch(given if "://" in given else f"http://{given}")
        if found is None:
            raise ValueError(f"{text!r} is not an http address such as http://host:30000")
        return cls(found[1].rstrip("/"), None if found[2] is None else int(found[2]))

    @property
    def name(self) -> str:
        return self.url if self.rank is None else f"{self.url}@{self.rank}"


@dataclass(slots=True, eq=False)
class Replica:
    """`labels` are the operator's. `api_key` goes with what the router itself asks. `is_followed`:
    it came from a list that changes by itself, and goes with it.
    """

    address: Address
    life: Life
    api_key: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    model: str = ""
    is_followed: bool = False
    wants_probe: bool = False  # a request has shown something odd

    @property
    def id(self) -> str:
        return f"{hash_key('', 'replica', self.name.encode()):016x}"

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def url(self) -> str:
        return self.address.url


class Replicas:
    def __init__(self, fleet: Fleet, life: LifeRules, load: LoadRules) -> None:
        self.fleet = fleet
        self.ledger = Ledger(fleet, load)
        self._rules = life
        self._replicas: dict[str, Replica] = {}
        self._listed: frozenset[str] = frozenset()  # names of the followed list as it was read last
        self._dismissed: set[str] = set()  # of those, what an operator drained

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, name: str) -> Replica | None:
        return self._replicas.get(name)

    def add(self, address: Address, *, is_first: bool = False, api_key: str = "") -> Replica:
        """Gives the replica of that name, which is a new one unless it is there already."""
        self._dismissed.discard(address.name)
        known = self._replicas.get(address.name)
        if known is not None:
            return known
        replica = Replica(address, Life(self._rules, is_first=is_first), api_key)
        self._replicas[address.name] = replica
        self.fleet.add(address.name, 0.0)
        self.ledger.add(address.name)
        return replica

    def dismiss(self, name: str, now: float) -> None:
        """An operator's drain: the replica does not come back with a list that still names it,
        only when it has left that list in between, or when an operator adds it.
        """
        if name in self._listed:
            self._dismissed.add(name)
        self._drain(name, now)

    def _drain(self, name: str, now: float) -> None:
        self._replicas[name].life.drain(now)
        self.refresh(now)

    def remove(self, name: str) -> None:
        replica = self._replicas.pop(name)
        replica.life.end()
        self.fleet.remove(name)
        self.ledger.remove(name)

    def follow(self, addresses: Iterable[Address], now: float, *, is_first: bool = False) -> None:
        """`addresses` is a list as it is now: adds what is new in it, drains what has left it.
        Replicas that came another way stay.
        """
        wanted = {address.name: address for address in addresses}
        self._listed = frozenset(wanted)
        self._dismissed &= self._listed
        for address in wanted.values():
            if address.name not in self._replicas and address.name not in self._dismissed:
                self.add(address, is_first=is_first).is_followed = True
        for replica in self:
            if replica.is_followed and replica.name not in wanted:
                self._drain(replica.name, now)

    def refresh(self, now: float) -> list[Replica]:
        """Weights by life and time. Removes drained replicas without requests; those that still
        have some when their time is over are returned, to be aborted.
        """
        late = []
        for replica in self:
            self.fleet.set_weight(replica.name, replica.life.weight(now))
            if replica.life.drain_deadline == float("inf"):
                continue
            if not self.ledger.num_live(replica.name):
                self.remove(replica.name)
            elif now >= replica.life.drain_deadline:
                late.append(replica)
        return late

    def note(self, name: str, evidence: Evidence, now: float) -> None:
        """What a request has shown."""
        replica = self._replicas.get(name)
        if replica is None or evidence is Evidence.NEUTRAL:
            return
        if evidence is Evidence.SUCCESS:
            replica.life.succeeded(now)
        else:
            replica.life.failed(now)
        self.fleet.set_weight(name, replica.life.weight(now))

    def probed(self, name: str, result: Probe, now: float) -> None:
        replica = self._replicas.get(name)
        if replica is not None:
            replica.life.probed(result, now)
            self.fleet.set_weight(name, replica.life.weight(now))

    def counts(self) -> dict[State, int]:
        counts = dict.fromkeys(State, 0)
        for replica in self:
            counts[replica.life.state] += 1
        return counts
