"""Which replica has the prefixes of which session: a bounded map, least recently used out first.

An entry that nobody asked for during `ttl_s` counts as absent. Time is an argument everywhere.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Pin:
    """`spills`: how many times running the key was served elsewhere. `prompt_bytes`: size of the
    last request's body, most of which the next turn sends again.
    """

    replica: str
    used_at: float
    spills: int = 0
    prompt_bytes: int = 0


class Pins:
    def __init__(self, ttl_s: float, capacity: int) -> None:
        self._ttl_s = ttl_s
        self._capacity = capacity
        self._pins: OrderedDict[int, Pin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def peek(self, key: int, now: float) -> Pin | None:
        """Without counting as a use."""
        pin = self._pins.get(key)
        return pin if pin is not None and now - pin.used_at <= self._ttl_s else None

    def use(self, key: int, now: float) -> Pin | None:
        pin = self.peek(key, now)
        if pin is not None:
            pin.used_at = now
            self._pins.move_to_end(key)
        return pin

    def put(self, key: int, replica: str, now: float) -> Pin:
        """A fresh entry in place of any other."""
        pin = self._pins[key] = Pin(replica, now)
        self._pins.move_to_end(key)
        self._evict(now)
        return pin

    def counts(self) -> dict[str, int]:
        """Entries by replica, expired ones that are still here included."""
        counts: dict[str, int] = {}
        for pin in self._pins.values():
            counts[pin.replica] = counts.get(pin.replica, 0) + 1
        return counts

    def _evict(self, now: float) -> None:
        """Oldest first, so that the expired are at the front."""
        while self._pins:
            oldest = next(iter(self._pins.values()))
            if len(self._pins) <= self._capacity and now - oldest.used_at <= self._ttl_s:
                return
            self._pins.popitem(last=False)
