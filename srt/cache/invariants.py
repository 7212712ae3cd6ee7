"""Counting checks over pages, slots, tree and leases together. Reads only.

Conservation is in pages, never tokens (T5): rounding hides leaks when a page has several tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..errors import InvariantBroken
from .lease import Lease
from .node import RadixNode
from .pages import PageAllocator
from .radix import RadixTree
from .slots import SlotAllocator
from .warm import WarmWindows


def check_conservation(
    pages: PageAllocator, tree: RadixTree, leases: Iterable[Lease], page_size: int
) -> None:
    """Each taken page is in one tree node or one private tail (T2), and none is lost (T5).

    Raises: InvariantBroken."""
    held = [page for node in tree.nodes() for page in node.pages]
    for lease in leases:
        held.extend(lease.pages[lease.protected_len // page_size :])
    taken = pages.taken()
    if sorted(held) != taken:
        twice = sorted(page for page, count in Counter(held).items() if count > 1)
        lost, stray = sorted(set(taken) - set(held)), sorted(set(held) - set(taken))
        raise InvariantBroken(f"T2, T5: pages held twice {twice}, lost {lost}, not taken {stray}")


def check_slots(slots: SlotAllocator, leases: Iterable[Lease], warm: WarmWindows) -> None:
    """Each taken slot has one owner: a lease, or a window that is kept warm (S1).

    Raises: InvariantBroken."""
    owned = Counter([*(lease.slot for lease in leases), *warm])
    for slot, count in owned.items():
        if count > 1 or not slots.holds(slot):
            raise InvariantBroken(f"slot {slot} is not taken, or by {count} owners")
    if len(owned) != slots.num_taken:
        raise InvariantBroken(f"{slots.num_taken} slots are taken by {len(owned)} owners")


def check_leases(tree: RadixTree, leases: Iterable[Lease], page_size: int) -> None:
    """Each lease has one live pin whose path spells its protected pages (T15, T20), and nothing
    else is pinned. Raises: InvariantBroken."""
    pins: dict[RadixNode, int] = {}
    for lease in leases:
        if lease.pin.released or lease.protected_len % page_size:
            raise InvariantBroken(f"T20: lease of slot {lease.slot} has no live pin")
        if _path_pages(lease.pin.node) != list(lease.pages[: lease.protected_len // page_size]):
            raise InvariantBroken(f"T15: lease of slot {lease.slot} does not follow the tree")
        pins[lease.pin.node] = pins.get(lease.pin.node, 0) + 1
    for node in [*tree.roots(), *tree.nodes()]:
        below = sum(child.pins for child in node.children.values())
        if node.pins != below + pins.get(node, 0):
            raise InvariantBroken(f"T3: node {node.id} has {node.pins} pins")


def _path_pages(node: RadixNode) -> list[int]:
    path: list[RadixNode] = []
    up: RadixNode | None = node
    while up is not None:
        path.append(up)
        up = up.parent
    return [page for step in reversed(path) for page in step.pages]
