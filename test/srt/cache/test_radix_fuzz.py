"""RadixTree against a dict of published prefixes: 10^5 random operations, `check` after each."""

from __future__ import annotations

import random
from array import array

import pytest

from treadle.srt.cache.node import Run
from treadle.srt.cache.radix import RadixTree

OPS = 12_500  # times eight parameter sets: 10^5
NUM_PAGES = 128
NAMESPACES = ((), (("salt", "a"),))


class Model:
    """`known` maps (ns, ids of a page-aligned prefix) to [page, approx]."""

    def __init__(self, page_size, seed, policy):
        self.tree = RadixTree(page_size, policy, prompt_ticks=40)
        self.random = random.Random(seed)
        self.size = page_size
        self.known: dict = {}
        self.open: list = []  # [ns, tokens, pin, pages, approx]
        self.free = list(range(1, NUM_PAGES))

    def text(self):
        """Pages of three kinds; now and then one that parts from its kind at the last id."""
        ids: list[int] = []
        for _ in range(self.random.randint(0, 8)):
            kind = self.random.randint(0, 2)
            ids += [kind] * (self.size - 1) + [kind if self.random.random() < 0.8 else 5]
        return array("i", ids + [7] * self.random.randint(0, self.size - 1))

    def prefix(self, ns, tokens, pages):
        return ns, tokens[: pages * self.size].tobytes()

    def match(self, ns, tokens, limit):
        pages = exact = 0
        while (pages + 1) * self.size <= min(limit, len(tokens)):
            entry = self.known.get(self.prefix(ns, tokens, pages + 1))
            if entry is None:
                break
            exact += exact == pages and not entry[1]
            pages += 1
        return pages, exact

    def probe(self):
        ns, tokens = self.random.choice(NAMESPACES), self.text()
        limit = self.random.randint(0, len(tokens))
        found = self.tree.probe(ns, tokens, limit)
        assert (found.pages, found.exact) == self.match(ns, tokens, limit)

    def acquire(self):
        if len(self.open) >= 8:
            return
        ns, tokens = self.random.choice(NAMESPACES), self.text()
        limit = self.random.randint(0, len(tokens))
        got = self.tree.pin(ns, tokens, limit, is_resume=self.random.random() < 0.3)
        pages, _ = self.match(ns, tokens, limit)
        entries = [self.known[self.prefix(ns, tokens, i + 1)] for i in range(pages)]
        assert list(got.pages) == [page for page, _ in entries]
        assert got.approx == max((approx for _, approx in entries), default=0)
        approx = got.approx or self.random.randint(0, 1)
        self.open.append([ns, tokens, got.pin, list(got.pages), approx])

    def publish(self):
        if not self.open:
            return
        request = self.random.choice(self.open)
        ns, tokens, pin, pages, approx = request
        start = len(pages)
        end = self.random.randint(start, len(tokens) // self.size)
        if end - start > len(self.free) or end == start:
            return
        own = array("i", [self.free.pop() for _ in range(end - start)])
        prompt_end = self.random.randint(0, end)
        pinned = self.pinned()
        done = self.tree.publish(pin, Run(tokens, start, end, own, prompt_end, approx))
        self.tree.unpin(pin)
        request[2] = done.pin
        rebound = {first + i: p for first, run in done.rebound for i, p in enumerate(run)}
        retired = []
        for i in range(start, end):
            key = self.prefix(ns, tokens, i + 1)
            entry = self.known.get(key)
            if entry is None:
                self.known[key] = entry = [own[i - start], approx]
            elif entry[1] and not approx and key not in pinned:
                retired.append(entry[0])
                entry[:] = [own[i - start], 0]
            else:
                assert rebound.pop(i) == entry[0]
                self.free.append(own[i - start])
            pages.append(entry[0])
        assert not rebound and sorted(done.retired) == sorted(retired)
        self.free += retired

    def release(self):
        if self.open:
            self.tree.unpin(self.open.pop(self.random.randrange(len(self.open)))[2])

    def pinned(self):
        return {
            self.prefix(ns, tokens, i + 1)
            for ns, tokens, _, pages, _ in self.open
            for i in range(len(pages))
        }

    def evict(self):
        count = self.random.randint(0, 9)
        pinned = self.pinned()
        freed = list(self.tree.evict(count))
        assert len(freed) == min(count, len(self.known) - len(pinned))
        gone = {key for key, (page, _) in self.known.items() if page in freed}
        assert len(gone) == len(freed) and not gone & pinned
        self.known = {key: entry for key, entry in self.known.items() if key not in gone}
        step = self.size * 4
        for ns, ids in self.known:
            assert len(ids) == step or (ns, ids[:-step]) in self.known  # T7
        self.free += freed

    def flush(self):
        if self.random.random() < 0.95:
            return
        pages = self.tree.flush()
        assert sorted(pages) == sorted(page for page, _ in self.known.values())
        self.free += pages
        self.known = {}
        for _, _, pin, _, _ in self.open:
            self.tree.unpin(pin)  # void: of an older generation
        self.open = []

    def check(self):
        self.tree.check()
        pinned = len(self.pinned())
        assert self.tree.protected_pages == pinned
        assert self.tree.evictable_pages == len(self.known) - pinned
        assert len(self.free) + len(self.known) == NUM_PAGES - 1


@pytest.mark.parametrize(
    ("page_size", "seed", "policy"),
    [
        (1, 0, "lru"),
        (1, 1, "lfu"),
        (1, 2, "lru"),
        (2, 3, "lru"),
        (2, 4, "slru"),
        (2, 5, "lru"),
        (16, 6, "lru"),
        (16, 7, "fifo"),
    ],
)
def test_tree_agrees_with_a_dict_of_prefixes(page_size, seed, policy):
    """Section 7, test 1."""
    model = Model(page_size, seed, policy)
    steps = [model.acquire] * 4 + [model.publish] * 6 + [model.release] * 4
    steps += [model.probe] * 3 + [model.evict, model.flush]
    for _ in range(OPS):
        model.random.choice(steps)()
        model.check()
