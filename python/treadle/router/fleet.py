"""Replicas as a choice sees them: weight, load, and the order that a key gives them.

    score(key, replica) = -log(uniform(mix(key ^ seed(replica)))) / weight      smallest first

Weighted rendezvous hashing: every key orders all replicas by itself, so adding or removing one
moves only the keys that it wins or had won, and nobody builds a ring. Seeds are hashes of names:
routers that know the same names agree. Knows no sessions, no health and no clock. Loads are tokens.

Invariant: `total` is the sum of the loads of replicas whose weight is above 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from .keys import hash_key

Mask = NDArray[np.bool_]
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # of splitmix64
_UNIT = 2.0**-53


class Fleet:
    """`eps` and `gap` (tokens) bound a replica's load: at most (1 + eps) times the mean, or the
    mean and `gap` where that is more.
    """

    def __init__(self, eps: float = 0.25, gap: float = 2048.0) -> None:
        self._eps = eps
        self._gap = gap
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._seeds = np.empty(0, np.uint64)
        self._weights = np.empty(0, np.float64)
        self._loads = np.empty(0, np.float64)
        self._requests = np.empty(0, np.int64)
        self._total = 0.0
        self._count = 0

    @property
    def gap(self) -> float:
        return self._gap

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @property
    def num_eligible(self) -> int:
        return self._count

    @property
    def mean_load(self) -> float:
        return self._total / self._count if self._count else 0.0

    @property
    def bound(self) -> float:
        """Tokens."""
        mean = self.mean_load
        return max((1.0 + self._eps) * mean, mean + self._gap)

    def add(self, name: str, weight: float = 1.0) -> None:
        assert name not in self._rows
        self._rows[name] = len(self._names)
        self._names.append(name)
        seed = np.uint64(hash_key("", "replica", name.encode()))
        self._seeds = np.append(self._seeds, seed)
        self._weights = np.append(self._weights, weight)
        self._loads = np.append(self._loads, 0.0)
        self._requests = np.append(self._requests, 0)
        self._recount()

    def remove(self, name: str) -> None:
        row = self._rows.pop(name)
        del self._names[row]
        self._rows = {name: i for i, name in enumerate(self._names)}
        self._seeds = np.delete(self._seeds, row)
        self._weights = np.delete(self._weights, row)
        self._loads = np.delete(self._loads, row)
        self._requests = np.delete(self._requests, row)
        self._recount()

    def set_weight(self, name: str, weight: float) -> None:
        """0 takes the replica out of every choice."""
        row = self._rows[name]
        if self._weights[row] != weight:
            self._weights[row] = weight
            self._recount()

    def set_load(self, name: str, tokens: float, requests: int) -> None:
        row = self._rows[name]
        if self._weights[row] > 0:
            self._total += tokens - float(self._loads[row])
        self._loads[row] = tokens
        self._requests[row] = requests

    def load(self, name: str) -> float:
        return float(self._loads[self._rows[name]])

    def requests(self, name: str) -> int:
        return int(self._requests[self._rows[name]])

    def is_eligible(self, name: str) -> bool:
        row = self._rows.get(name)
        return row is not None and bool(self._weights[row] > 0)

    def is_over(self, name: str) -> bool:
        return self.load(name) > self.bound

    def eligible(self, without: Collection[str] = ()) -> list[str]:
        return [self._names[i] for i in np.flatnonzero(self._mask(without))]

    def first(self, key: int, without: Collection[str] = ()) -> str | None:
        """The first replica in the order of `key`, whatever its load."""
        return self._winner(key, self._mask(without))

    def place(self, key: int, without: Collection[str] = ()) -> str | None:
        """The first replica in the order of `key` that is within the bound; the least loaded when
        none is. None when there is none at all.
        """
        mask = self._mask(without)
        within = mask & (self._loads <= self.bound)
        return self._winner(key, within) or self.least(without)

    def least(self, without: Collection[str] = ()) -> str | None:
        """The least loaded; of equals the first by name, so that routers agree."""
        mask = self._mask(without)
        if not mask.any():
            return None
        lowest = self._loads[mask].min()
        return min(self._names[i] for i in np.flatnonzero(mask & (self._loads == lowest)))

    def _winner(self, key: int, mask: Mask) -> str | None:
        rows = np.flatnonzero(mask)
        if not rows.size:
            return None
        race = -np.log(_uniform(self._seeds[rows] ^ np.uint64(key))) / self._weights[rows]
        return self._names[int(rows[race.argmin()])]

    def _mask(self, without: Collection[str]) -> Mask:
        mask: Mask = self._weights > 0
        for name in without:
            if name in self._rows:
                mask[self._rows[name]] = False
        return mask

    def _recount(self) -> None:
        mask = self._weights > 0
        self._total = float(self._loads[mask].sum())
        self._count = int(mask.sum())


def _uniform(values: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes of `values`, spread over (0, 1)."""
    mixed = (values ^ (values >> _SHIFTS[0])) * _FACTORS[0]
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _FACTORS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT
