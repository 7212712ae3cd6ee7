"""RadixTree: prefix index over pages of global KV. Never holds window state, slots or contents.

One root per namespace (T26), so that equal ids of two namespaces never meet:

    roots: {ns: root}   root -- [prompt pages] -- [output pages] -- ...
                             \\- [another prompt]

Every path from a root spells token ids; each edge begins at a page boundary. Pinning a node pins
its ancestors. Only unpinned leaves, or their tail pages, are evicted (T7, T21, T22).

Invariants (T1-T4, T7), all counted by `check`: siblings differ in their first page; a node's pins
are at least the sum of its children's; `evictable_pages` are those of unpinned nodes,
`protected_pages` the rest, `approx_pages` those of nodes that are not exact; an entry in the
eviction order for each unpinned leaf.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from ..errors import InvariantBroken
from .eviction import EvictionOrder
from .node import (
    OUTPUT,
    PROMPT,
    TOKEN_BYTES,
    Match,
    Namespace,
    Pin,
    Pinned,
    Published,
    RadixNode,
    Run,
)

NEVER = 1 << 62


class RadixTree:
    """`tick` is logical: it advances by one per pin and by the pages per publish, so
    `prompt_ticks` (how long a prompt outranks outputs after its last use, T23) is a turnover."""

    def __init__(self, page_size: int, policy: str = "lru", prompt_ticks: int = NEVER) -> None:
        """Raises: ConfigError for an unknown eviction policy."""
        self.page_size = page_size
        self.tick = 0
        self.generation = 0
        self.num_nodes = 0
        self.evictable_pages = 0
        self.protected_pages = 0
        self.approx_pages = 0
        self.evicted_leaf_pages = 0
        self.evicted_tail_pages = 0
        self._page_bytes = page_size * TOKEN_BYTES
        self._policy = policy
        self._prompt_ticks = prompt_ticks
        self._order = EvictionOrder(policy)
        self._roots: dict[Namespace, RadixNode] = {}
        self._next_id = 0

    def probe(self, ns: Namespace, tokens: array[int], limit: int) -> Match:
        """Longest match within the first `limit` tokens. Pure (T8)."""
        node = self._roots.get(ns)
        path: list[RadixNode] = []
        at = exact = 0
        end = min(limit, len(tokens)) // self.page_size
        view = memoryview(tokens)
        while node is not None and at < end:
            node = node.children.get(self._bytes(view, at, at + 1))
            if node is None:
                break
            common = self._common(node, view, at, end)
            if exact == at and not node.approx:
                exact += common
            path.append(node)
            at += common
            if common < len(node.pages):
                break
        return Match(at, exact, tuple(path))

    def pin(self, ns: Namespace, tokens: array[int], limit: int, *, is_resume: bool) -> Pinned:
        """Split at the end of the match (T11), touch its nodes (T12), pin it, and hand its pages
        out. A resumed request has been counted in `hits` before (T18)."""
        found = self.probe(ns, tokens, limit)
        node = self._root(ns)
        self.tick += 1
        pages = array("i")
        approx = 0
        for child in found.path:
            node = self._cut(child, found.pages - len(pages))
            node.tick = self.tick
            node.hits += not is_resume
            node.priority = PROMPT  # it has been sent again, whatever it was
            node.expires_at = self.tick + self._prompt_ticks
            pages.extend(node.pages)
            approx = max(approx, node.approx)
        return Pinned(self._pin_path(node), pages, approx)

    def publish(self, pin: Pin, run: Run) -> Published:
        """Insert `run` below `pin.node`, which must end at page `run.start`. Where the tree has the
        tokens its pages win (T14), save that an exact run replaces an unpinned node that is not
        (B33). The caller rebinds its page table, then gives the old pin back."""
        self.tick += run.end - run.start
        view = memoryview(run.tokens)
        node, at, approx = pin.node, run.start, 0
        rebound: list[tuple[int, array[int]]] = []
        retired = array("i")
        while at < run.end:
            child = node.children.get(self._bytes(view, at, at + 1))
            if child is None:
                node = self._attach(node, pin, run, at)
                break
            node = self._cut(child, self._common(child, view, at, run.end))
            node.hits += 1
            self._stamp(node, PROMPT if at < run.prompt_end else OUTPUT)
            first = at - run.start
            at += len(node.pages)
            if node.approx and not run.approx and not node.pins:
                retired.extend(node.pages)
                self.approx_pages -= len(node.pages)
                node.pages = run.pages[first : at - run.start]
                node.approx = 0
            else:
                rebound.append((first + run.start, node.pages[:]))
                approx = max(approx, node.approx)
        return Published(self._pin_path(node), rebound, retired, approx)

    def goes_on(self, pin: Pin, tokens: array[int], page: int) -> bool:
        """Whether page `page` of `tokens`, which follows the pinned path, is in the tree too."""
        return self._bytes(memoryview(tokens), page, page + 1) in pin.node.children

    def unpin(self, pin: Pin) -> None:
        """Give a receipt back. Raises: InvariantBroken the second time (T19)."""
        if pin.released:
            raise InvariantBroken("a pin is released twice")
        pin.released = True
        if pin.generation != self.generation:
            return
        node: RadixNode | None = pin.node
        while node is not None:
            node.pins -= 1
            if not node.pins:
                self._loosen(node)
            node = node.parent

    def evict(self, count: int) -> array[int]:
        """Take up to `count` pages of unpinned leaves out of the tree: tail pages when that is
        enough (T22), else whole leaves. Fewer come back when all else is pinned."""
        freed = array("i")
        while len(freed) < count:
            leaf = self._order.first(self.tick)
            if leaf is None:
                break
            keep = len(leaf.pages) - (count - len(freed))
            gone = leaf.pages[max(keep, 0) :]
            freed.extend(gone)
            self.approx_pages -= len(gone) if leaf.approx else 0
            if keep > 0:
                self.evicted_tail_pages += len(gone)
                del leaf.pages[keep:]
                leaf.key = leaf.key[: keep * self._page_bytes]
            else:
                self.evicted_leaf_pages += len(gone)
                self._remove(leaf)
        self.evictable_pages -= len(freed)
        return freed

    def flush(self) -> array[int]:
        """Empty the tree and hand its pages out. Receipts of before are void (T25)."""
        pages = array("i")
        for node in self.nodes():
            pages.extend(node.pages)
        self.generation += 1
        self._roots = {}
        self._order = EvictionOrder(self._policy)
        self.num_nodes = self.evictable_pages = self.protected_pages = self.approx_pages = 0
        return pages

    def nodes(self) -> Iterator[RadixNode]:
        """All nodes that own pages, parents before children."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def roots(self) -> list[RadixNode]:
        return list(self._roots.values())

    def check(self) -> None:
        """Raises: InvariantBroken naming the rule that does not hold (T1, T3, T4, T7, T21)."""
        evictable = protected = approx = count = 0
        leaves: list[int] = []
        for node in [*self._roots.values(), *self.nodes()]:
            self._check_node(node)
            if node.parent is None:
                continue
            count += 1
            evictable += 0 if node.pins else len(node.pages)
            protected += len(node.pages) if node.pins else 0
            approx += len(node.pages) if node.approx else 0
            if node.is_evictable:
                leaves.append(node.id)
        if (evictable, protected) != (self.evictable_pages, self.protected_pages):
            raise InvariantBroken(
                f"T4: counted {evictable} evictable and {protected} protected pages, "
                f"booked {self.evictable_pages} and {self.protected_pages}"
            )
        if approx != self.approx_pages:
            raise InvariantBroken(f"counted {approx} pages not exact, booked {self.approx_pages}")
        if count != self.num_nodes:
            raise InvariantBroken(f"counted {count} nodes, booked {self.num_nodes}")
        if sorted(leaves) != sorted(node.id for node in self._order.valid()):
            raise InvariantBroken("T21: unpinned leaves differ from the eviction order")

    def _check_node(self, node: RadixNode) -> None:
        if node.parent is None and (self._roots.get(node.ns or ()) is not node or node.key):
            raise InvariantBroken("T7: a node without parent is not an empty root")
        if node.parent is None and not node.children and not node.pins:
            raise InvariantBroken("an unused namespace root is kept")
        if node.parent is not None and not node.pages:
            raise InvariantBroken(f"node {node.id} owns no page")
        if len(node.key) != len(node.pages) * self._page_bytes:
            raise InvariantBroken(f"node {node.id} has {len(node.key)} key bytes")
        if node.pins < sum(child.pins for child in node.children.values()):
            raise InvariantBroken(f"T3: node {node.id} has fewer pins than its children")
        for first, child in node.children.items():
            if child.parent is not node or child.key[: self._page_bytes] != first:
                raise InvariantBroken(f"T1: node {child.id} is not where its first page says")

    def _bytes(self, view: memoryview, start: int, end: int) -> bytes:
        return view[start * self.page_size : end * self.page_size].tobytes()

    def _common(self, node: RadixNode, view: memoryview, at: int, end: int) -> int:
        """Equal leading pages, at least 1, of `node` and of `view` between pages `at` and `end`.
        One memcmp when all are equal, else a binary search over memcmp's."""
        high = min(len(node.pages), end - at)
        span = self._bytes(view, at, at + high)
        if node.key.startswith(span):
            return high
        size, low = self._page_bytes, 1
        while high - low > 1:
            middle = (low + high) // 2
            if span[low * size : middle * size] == node.key[low * size : middle * size]:
                low = middle
            else:
                high = middle
        return low

    def _root(self, ns: Namespace) -> RadixNode:
        root = self._roots.get(ns)
        if root is None:
            root = self._roots[ns] = self._node(b"", array("i"), None, OUTPUT)
            root.ns = ns
        return root

    def _node(
        self, key: bytes, pages: array[int], parent: RadixNode | None, priority: int
    ) -> RadixNode:
        self._next_id += 1
        node = RadixNode(self._next_id, key, pages, parent, hits=1, born=self.tick)
        self._stamp(node, priority)
        return node

    def _stamp(self, node: RadixNode, priority: int) -> None:
        """Priority is the largest of all inserters', and bounded in time (T23)."""
        node.tick = self.tick
        node.priority = max(node.priority, priority)
        node.expires_at = self.tick + self._prompt_ticks if node.priority else None

    def _cut(self, node: RadixNode, count: int) -> RadixNode:
        """The node of the first `count` pages of `node`: itself, or a new upper half."""
        if count >= len(node.pages):
            return node
        assert node.parent is not None
        size = self._page_bytes
        upper = self._node(node.key[: count * size], node.pages[:count], node.parent, node.priority)
        upper.pins, upper.tick, upper.born = node.pins, node.tick, node.born
        upper.hits, upper.approx, upper.expires_at = node.hits, node.approx, node.expires_at
        node.parent.children[node.key[:size]] = upper
        node.key, node.pages, node.parent = node.key[count * size :], node.pages[count:], upper
        upper.children[node.key[:size]] = node
        self.num_nodes += 1
        return upper

    def _attach(self, node: RadixNode, pin: Pin, run: Run, at: int) -> RadixNode:
        """Pages `[at, run.end)` as new nodes, prompt and output apart (T17), or appended to
        the pinned leaf when nobody else has ever used it (decode would make a node per page)."""
        edge = min(max(run.prompt_end, at), run.end)
        view = memoryview(run.tokens)
        for start, end, priority in ((at, edge, PROMPT), (edge, run.end, OUTPUT)):
            if start == end:
                continue
            key = self._bytes(view, start, end)
            pages = run.pages[start - run.start : end - run.start]
            self.approx_pages += len(pages) if run.approx else 0
            if node is pin.node and _is_own_leaf(node, run.approx, priority):
                node.key += key
                node.pages.extend(pages)
                self.protected_pages += len(pages)
                self._stamp(node, priority)
                continue
            child = self._node(key, pages, node, priority)
            child.approx = run.approx
            node.children[key[: self._page_bytes]] = child
            self.evictable_pages += len(pages)
            self.num_nodes += 1
            node = child
        return node

    def _pin_path(self, node: RadixNode) -> Pin:
        up: RadixNode | None = node
        while up is not None:
            if not up.pins:
                self.evictable_pages -= len(up.pages)
                self.protected_pages += len(up.pages)
            up.pins += 1
            up = up.parent
        return Pin(node, False, self.generation)

    def _loosen(self, node: RadixNode) -> None:
        """The last pin of `node` is gone."""
        self.evictable_pages += len(node.pages)
        self.protected_pages -= len(node.pages)
        if node.is_evictable:
            self._order.push(node)
        elif node.parent is None and not node.children and node.ns is not None:
            del self._roots[node.ns]

    def _remove(self, leaf: RadixNode) -> None:
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.key[: self._page_bytes]]
        leaf.parent = None  # its entries in the eviction order are dead
        self.num_nodes -= 1
        if parent.is_evictable:
            self._order.push(parent)
        elif parent.parent is None and not parent.children and not parent.pins:
            assert parent.ns is not None
            del self._roots[parent.ns]


def _is_own_leaf(node: RadixNode, approx: int, priority: int) -> bool:
    is_single = node.pins == 1 and node.hits == 1 and not node.children
    return is_single and bool(node.pages) and (node.approx, node.priority) == (approx, priority)
