"""An outline of the radix tree as the boxes of a picture: few, the largest, the rest merged.

    outline, up to 1,000 nodes        boxes, at most `limit` and a rest for each of them
    root -- A -- B, C, d, e, f   ->   A, B, C, rest of A (3 nodes)

Parents come before children, and a box never without its parent. Tokens below what the outline has
not seen are not in any box: `seen_tokens` says how much of the tree the picture is of.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from ..snapshot import TreeOutline

LIMIT = 400


@dataclass(frozen=True, slots=True)
class Box:
    """`parent`: its index in the list, -1 for none. `tokens` of itself, `total_tokens` with all
    below. `nodes`: 1, or how many a rest stands for; `unseen`: children that were not looked at. A
    rest has the fewest approximations of its nodes. `scope`: number of its cache scope."""

    parent: int
    scope: int
    tokens: int
    total_tokens: int
    nodes: int
    approx: int
    pins: int
    hits: int
    is_prompt: bool
    is_rest: bool
    unseen: int


@dataclass(frozen=True, slots=True)
class TreeView:
    """`seen`: what the boxes stand for."""

    num_nodes: int
    num_tokens: int
    seen_nodes: int
    seen_tokens: int
    boxes: tuple[Box, ...]


def view_of(outline: TreeOutline, limit: int = LIMIT) -> TreeView:
    """At most `limit` nodes have a box of their own."""
    totals = _totals(outline)
    children: list[list[int]] = [[] for _ in totals]
    tops: list[int] = []
    for index, parent in enumerate(outline.parents):
        (children[parent] if parent >= 0 else tops).append(index)
    boxes = _Boxes(outline, totals)
    heap = [
        (-totals[child], child, -1, scope)
        for scope, root in enumerate(tops)
        for child in children[root]
    ]
    heapq.heapify(heap)
    while heap and len(boxes.made) < limit:
        _, node, parent, scope = heapq.heappop(heap)
        here = boxes.add(node, parent, scope)
        for child in children[node]:
            heapq.heappush(heap, (-totals[child], child, here, scope))
    rests: dict[tuple[int, int], list[int]] = {}
    for _, node, parent, scope in heap:
        rests.setdefault((parent, scope), []).append(node)
    for (parent, scope), nodes in sorted(rests.items()):
        boxes.add_rest(nodes, parent, scope)
    size = outline.page_size
    return TreeView(
        num_nodes=outline.num_nodes,
        num_tokens=outline.num_pages * size,
        seen_nodes=len(totals) - len(tops),
        seen_tokens=sum(outline.pages) * size,
        boxes=tuple(boxes.made),
    )


def _totals(outline: TreeOutline) -> list[int]:
    """Pages of each node with all that was seen below it."""
    totals = list(outline.pages)
    for index in range(len(totals) - 1, -1, -1):
        parent = outline.parents[index]
        if parent >= 0:
            totals[parent] += totals[index]
    return totals


class _Boxes:
    def __init__(self, outline: TreeOutline, totals: list[int]) -> None:
        self.made: list[Box] = []
        self._outline = outline
        self._totals = totals

    def add(self, node: int, parent: int, scope: int) -> int:
        """Its index."""
        seen = self._outline
        self.made.append(
            Box(
                parent=parent,
                scope=scope,
                tokens=seen.pages[node] * seen.page_size,
                total_tokens=self._totals[node] * seen.page_size,
                nodes=1,
                approx=seen.approx[node],
                pins=seen.pins[node],
                hits=seen.hits[node],
                is_prompt=bool(seen.is_prompt[node]),
                is_rest=False,
                unseen=seen.unseen[node],
            )
        )
        return len(self.made) - 1

    def add_rest(self, nodes: list[int], parent: int, scope: int) -> None:
        """Siblings in one box, as long as the longest of them. What is below them is counted in
        `total_tokens` only."""
        seen = self._outline
        self.made.append(
            Box(
                parent=parent,
                scope=scope,
                tokens=max(seen.pages[node] for node in nodes) * seen.page_size,
                total_tokens=sum(self._totals[node] for node in nodes) * seen.page_size,
                nodes=len(nodes),
                approx=min(seen.approx[node] for node in nodes),
                pins=sum(seen.pins[node] for node in nodes),
                hits=sum(seen.hits[node] for node in nodes),
                is_prompt=all(seen.is_prompt[node] for node in nodes),
                is_rest=True,
                unseen=sum(seen.unseen[node] for node in nodes),
            )
        )
