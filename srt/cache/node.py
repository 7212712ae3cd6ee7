"""RadixNode and the receipts of the radix tree.

A node owns a run of whole pages: `key` is its token ids as little-endian int32 bytes, so that two
runs are compared by memcmp. Children are found by the bytes of their first page (T1). Splitting
makes a new *upper* node; the old object stays the lower half, so receipts that name it stay valid:

    parent -- [a b c d]*           parent -- [a b] -- [c d]*        * the same object, same id
                                            new, same pins
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

Namespace = tuple[tuple[str, str], ...]  # typed fields (T26)

TOKEN_BYTES = 4
OUTPUT, PROMPT = 0, 1  # node priority: prompts are sent again, outputs seldom (T17)


@dataclass(slots=True, eq=False)
class RadixNode:
    """A node without parent is the root of namespace `ns`: it has no pages and is never evicted.

    `approx`: how many bounded replays lie behind its bytes; 0 is exact (B31, B34). `tick`, `born`:
    logical times of last touch and of making. `ticket`: number of its valid entry in the eviction
    order.
    """

    id: int
    key: bytes
    pages: array[int]
    parent: RadixNode | None
    ns: Namespace | None = None
    children: dict[bytes, RadixNode] = field(default_factory=dict)
    pins: int = 0
    tick: int = 0
    born: int = 0
    hits: int = 0
    priority: int = OUTPUT
    expires_at: int | None = None
    approx: int = 0
    ticket: int = 0

    @property
    def is_evictable(self) -> bool:
        """An unpinned leaf (T21)."""
        return not self.pins and not self.children and self.parent is not None


@dataclass(slots=True, eq=False)
class Pin:
    """Receipt of a pinned path (T19). Given back exactly once; void after a flush (T25)."""

    node: RadixNode
    released: bool
    generation: int


@dataclass(frozen=True, slots=True)
class Match:
    """What a probe found, in pages. `exact` stops at the first node that is not exact (B32).
    `path`: nodes from the top; the last may be matched in part."""

    pages: int
    exact: int
    path: tuple[RadixNode, ...]

    def unpinned(self, pages: int) -> int:
        """Pages among the first `pages` that count as evictable now (T24)."""
        total = at = 0
        for node in self.path:
            if at >= pages:
                break
            if not node.pins:
                total += min(len(node.pages), pages - at)
            at += len(node.pages)
        return total


@dataclass(frozen=True, slots=True)
class Pinned:
    """`approx`: the largest of the adopted nodes."""

    pin: Pin
    pages: array[int]
    approx: int


@dataclass(frozen=True, slots=True)
class Run:
    """Pages `[start, end)` of a request, to be published. `pages` are the request's own for that
    range; `prompt_end`: pages below it hold prompt only; `tokens` covers at least `end` pages."""

    tokens: array[int]
    start: int
    end: int
    pages: array[int]
    prompt_end: int
    approx: int


@dataclass(frozen=True, slots=True)
class Published:
    """`pin`: the new deepest node, pinned; the old pin is still held. `rebound`: (first page index,
    the tree's pages) where the tree had the tokens already. `retired`: pages that the tree gave up
    for the newcomer's. `approx`: largest of the rebound nodes."""

    pin: Pin
    rebound: list[tuple[int, array[int]]]
    retired: array[int]
    approx: int
