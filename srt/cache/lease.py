"""Lease, PrefixHit, Admission: what the cache knows of one request, and its answers to questions.

A `Lease` is written by `CacheManager` only; the scheduler's `Request` holds it and passes it back.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ..messages import SlotId
from .node import Namespace, Pin


@dataclass(slots=True, eq=False)
class Lease:
    """`pages[i]` holds positions `i*P ..`; those below `protected_len` are the tree's (T15).

    `approx` is the B34 generation of what the request computes: 0 equals a cold run, else one more
    than the largest it adopted. `prompt_len` is that of the first admission (T17).
    """

    ns: Namespace
    slot: SlotId
    pages: array[int]
    pin: Pin
    protected_len: int
    prompt_len: int
    approx: int
    is_deterministic: bool

    @property
    def is_exact(self) -> bool:
        return self.approx == 0


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Lengths in tokens. `length` is H (0: no hit), `start` is s = H - R, `cost` the mean replayed
    rows per layer. `matched` is what the tree has, whole pages. `dropped`: (reason, tokens) matched
    but not taken, reason being exactness, logprob or short."""

    length: int
    start: int
    cost: int
    matched: int
    dropped: tuple[tuple[str, int], ...]

    @property
    def replayed(self) -> int:
        """R of B37."""
        return self.length - self.start

    @property
    def dropped_reason(self) -> str:
        """The reason that lost most; "" when nothing was dropped."""
        return max(self.dropped, key=lambda item: item[1], default=("", 0))[0]


@dataclass(frozen=True, slots=True)
class Admission:
    """`pages`: the adopted page ids, a copy for the page-table update (index 0 on)."""

    hit: PrefixHit
    lease: Lease
    pages: array[int]

    @property
    def slot(self) -> SlotId:
        return self.lease.slot

    @property
    def pin(self) -> Pin:
        return self.lease.pin

    @property
    def exact(self) -> bool:
        """Whether the request's state will equal a cold run's (B31)."""
        return self.lease.approx == 0

    @property
    def generation(self) -> int:
        """B34 `approx_generation`."""
        return self.lease.approx
