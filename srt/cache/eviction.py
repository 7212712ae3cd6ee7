"""EvictionOrder: which unpinned leaf goes first (T21). Deterministic; holds no pages itself.

Order: expired nodes, then `(priority, policy key, tick, node id)`. The id makes it total. Two heaps
of entries; an entry counts only while its ticket is the node's newest and the node is an unpinned
leaf, so pinning, splitting and touching need not search a heap.

Invariant: each unpinned leaf has exactly one valid entry in `_order`. The tree pushes a leaf when
it becomes unpinned, and a parent when its last child goes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from ..errors import ConfigError
from .node import RadixNode

POLICIES: dict[str, Callable[[RadixNode], int]] = {
    "lru": lambda node: 0,
    "lfu": lambda node: node.hits,
    "slru": lambda node: int(node.hits > 1),  # probation before protected
    "fifo": lambda node: node.born,
}

_Entry = tuple[int, int, int, int, int, int, RadixNode]


class EvictionOrder:
    __slots__ = ("_policy", "_order", "_expiry", "_limit")

    def __init__(self, policy: str) -> None:
        """Raises: ConfigError for an unknown policy."""
        if policy not in POLICIES:
            raise ConfigError(
                f"--radix-eviction-policy {policy!r}: must be one of {tuple(POLICIES)}"
            )
        self._policy = POLICIES[policy]
        self._order: list[_Entry] = []
        self._expiry: list[tuple[int, int, int, RadixNode]] = []
        self._limit = 256

    def push(self, node: RadixNode) -> None:
        """`node` has just become an unpinned leaf."""
        self._enter(node, is_expired=False)
        if node.expires_at is not None:
            heapq.heappush(self._expiry, (node.expires_at, node.id, node.ticket, node))
        if len(self._order) > self._limit:
            self._compact()

    def first(self, tick: int) -> RadixNode | None:
        """The next victim at logical time `tick`, or None; it stays in the order."""
        while self._expiry and self._expiry[0][0] <= tick:
            _, _, ticket, node = heapq.heappop(self._expiry)
            if ticket == node.ticket and node.is_evictable:
                self._enter(node, is_expired=True)
        while self._order:
            *_, ticket, node = self._order[0]
            if ticket == node.ticket and node.is_evictable:
                return node
            heapq.heappop(self._order)
        return None

    def valid(self) -> list[RadixNode]:
        """Nodes with a valid entry, for `check`."""
        return [e[-1] for e in self._order if e[-2] == e[-1].ticket and e[-1].is_evictable]

    def _enter(self, node: RadixNode, *, is_expired: bool) -> None:
        node.ticket += 1
        key = self._policy(node)
        rank = 0 if is_expired else 1
        entry = (rank, node.priority, key, node.tick, node.id, node.ticket, node)
        heapq.heappush(self._order, entry)

    def _compact(self) -> None:
        """Drop dead entries; amortised, since the next one is due at twice what is left."""
        self._order = [e for e in self._order if e[-2] == e[-1].ticket and e[-1].is_evictable]
        self._expiry = [e for e in self._expiry if e[-2] == e[-1].ticket and e[-1].is_evictable]
        heapq.heapify(self._order)
        heapq.heapify(self._expiry)
        self._limit = 2 * len(self._order) + 256
