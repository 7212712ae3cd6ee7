"""What processes tell of their life: that they are ready, how far they are, that they cannot go on.

They are messages of `messages.py`; apart from it because of its length only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ready:
    """A process has finished starting. Workers report capacities; others leave them 0."""

    role: str  # "worker", "scheduler", "tokenizer"
    rank: int
    num_pages: int = 0
    num_slots: int = 0
    weight_bytes: int = 0
    kv_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """Loading progress of a worker, for the launcher's bar."""

    rank: int
    done_bytes: int
    total_bytes: int
    label: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A process cannot start or go on; the message is for the user."""

    role: str
    rank: int
    message: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    reason: str
