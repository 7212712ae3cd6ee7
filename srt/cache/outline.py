"""The upper part of a radix tree as columns of numbers, for who wants to look at it.

Breadth first, so what many prompts share comes before what one has added. Of siblings the newest
first, and not more than `CHILDREN` of them, so that some paths are seen to their end. Reads at most
`limit` nodes, whatever the tree has. What is left out is counted where its parent is (`unseen`).
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import islice

from ..snapshot import TreeOutline
from .node import PROMPT, RadixNode
from .radix import RadixTree

CHILDREN = 64
MOST = (1 << 31) - 1  # of an int32


def outline(tree: RadixTree, limit: int) -> TreeOutline:
    """At most `limit` nodes, roots of cache scopes among them. Pure."""
    columns = [array("i") for _ in range(7)]
    parents, pages, approx, pins, hits, is_prompt, unseen = columns
    queue: deque[tuple[RadixNode, int]] = deque()
    queue.extend((root, -1) for root in islice(reversed(tree.roots()), limit))
    room = limit - len(queue)
    while queue:
        node, parent = queue.popleft()
        index, seen = len(parents), min(room, CHILDREN, len(node.children))
        children = islice(reversed(node.children.values()), seen)
        queue.extend((child, index) for child in children)
        room -= seen
        parents.append(parent)
        pages.append(len(node.pages))
        approx.append(node.approx)
        pins.append(node.pins)
        hits.append(min(node.hits, MOST))
        is_prompt.append(node.priority == PROMPT)
        unseen.append(len(node.children) - seen)
    num_pages = tree.evictable_pages + tree.protected_pages
    return TreeOutline(tree.page_size, tree.num_nodes, num_pages, *columns)
