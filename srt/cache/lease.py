"""Lease, Origin, PrefixHit, Admission: what the cache knows of one request, and what it answers.

A `Lease` is written by `CacheManager` only; the scheduler's `Request` holds it and passes it back.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ..messages import SlotId
from .node import Pin
from .replay import ReplayShape
from .warm import Window, WindowSource


@dataclass(slots=True, eq=False)
class Lease:
    """`pages[i]` holds positions `i*P ..`; those below `protected_len` are the tree's (T15).

    `approx` is the B34 generation of what the request computes: 0 equals a cold run, else one more
    than the largest it adopted. `prompt_len` is that of the first admission (T17).
    """

    slot: SlotId
    pages: array[int]
    pin: Pin
    protected_len: int
    prompt_len: int
    approx: int
    shape: ReplayShape


@dataclass(frozen=True, slots=True)
class Origin:
    """What a request goes on from, beside its token ids.

    `resumed_prompt_len`: of a preempted one. `session`: a hint. `parent`: slot and window of the
    running request that a fork has its prompt from. Resumed requests and forks are counted in no
    hit statistics (B37)."""

    resumed_prompt_len: int | None = None
    session: str | None = None
    is_fork: bool = False
    parent: tuple[SlotId, Window] | None = None

    @property
    def is_counted(self) -> bool:
        return self.resumed_prompt_len is None and not self.is_fork


FRESH = Origin()


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Lengths in tokens. `length` is H (0: no hit), `start` is s = H - R. `dropped`: (reason,
    tokens) that the tree has but were not taken, reason being exactness, logprob or short.
    `source`: the window that is there already; nothing is replayed then (B5)."""

    length: int
    start: int
    dropped: tuple[tuple[str, int], ...]
    source: WindowSource | None = None

    @property
    def replayed(self) -> int:
        """R of B37."""
        return self.length - self.start


@dataclass(frozen=True, slots=True)
class Admission:
    """A slot and a pinned hit: `lease.pages` holds the adopted pages and nothing else yet."""

    hit: PrefixHit
    lease: Lease
