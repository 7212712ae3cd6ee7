"""What a live page shows of a scheduler, as values: requests, sessions, an outline of the tree.

Every list is bounded by who makes it, so a snapshot has some 100 KB at most, whatever is served.
Both messages are apart from `messages.py` because the cache and the API work with their parts.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request that has not ended. Tokens; `replayed` of the `cached` ones. `approx`: B34."""

    rid: str
    session: str | None
    state: str
    prompt_tokens: int
    computed_tokens: int
    output_tokens: int
    cached_tokens: int
    replayed_tokens: int
    approx: int
    age_s: float


@dataclass(frozen=True, slots=True)
class SessionView:
    """Requests of one name in one cache scope. Totals are of those that have ended; a fork's prompt
    is its parent's. `context_tokens`: of the newest that has ended; `window_tokens`: where its kept
    window ends, 0 without one. `silent_s`: since a request of it came."""

    session: str
    running: int
    waiting: int
    turns: int
    prompt_tokens: int
    cached_tokens: int
    replayed_tokens: int
    output_tokens: int
    context_tokens: int
    window_tokens: int
    approx: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class TreeOutline:
    """The upper part of the radix tree: a column per fact, an item per node, parents first.

    `parents`: index of a node's parent; -1 for the root of a cache scope, which has no pages.
    `approx` as in a node, `pins` and `hits` too; `is_prompt` 1 when it was sent as a prompt;
    `unseen`: children that are not in the outline, and so nothing below them. `num_nodes` and
    `num_pages` are of the whole tree, roots not counted.
    """

    page_size: int
    num_nodes: int
    num_pages: int
    parents: array[int]
    pages: array[int]
    approx: array[int]
    pins: array[int]
    hits: array[int]
    is_prompt: array[int]
    unseen: array[int]


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    token: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters and gauges are those of `messages.Stats`, of the same moment. Of running and waiting
    requests only the first are listed; gauges count them all."""

    token: int
    counters: dict[str, float]
    gauges: dict[str, float]
    requests: tuple[RequestView, ...]
    sessions: tuple[SessionView, ...]
    tree: TreeOutline
