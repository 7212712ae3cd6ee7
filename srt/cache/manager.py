"""CacheManager: the one door to pages, slots and the radix tree. Holds a `Lease` per request.

Life of a lease, and who owns its pages (`protected_len`, T15, is always whole pages):

    pages   [ tree, pinned          | private to the request      )
            0                       protected_len                 len(pages) * P

    admit     pins a hit, takes a slot; no private page yet. A refused admission left no trace (B30)
              A slot with the hit's window is copied to a free one, or else taken over (`warm.py`)
    grow      private pages up to a length, evicting if needed
    publish   moves the border: pages whose rows are committed go to the tree (T13)
    release   unpins; private pages and slot leave through quarantine (T31), or the slot stays warm

Nothing here decides when: the scheduler does, and it frees a lease in one place (T32). Invariants
T1-T7 are counted by `check`. Not thread-safe; no wall time, so equal calls give equal pages.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from ..arrays import ids
from ..errors import InvariantBroken
from .grid import count_points, segment_ends
from .invariants import check_conservation, check_leases, check_slots
from .lease import FRESH, Admission, Lease, Origin, PrefixHit
from .node import Match, Namespace, Run
from .pages import PageAllocator
from .radix import RadixTree
from .replay import ReplayRule, ReplayShape
from .warm import RingShape, Window, WindowSource
from .window_slots import WindowSlots

_NO_MATCH = Match(0, 0, ())


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """Counts include page 0 and slot 0, the sinks. `num_warm`: slots beyond one for each running
    request; windows of ended requests are kept only when there are some. `ring_rows`: C, without
    the rows for drafts."""

    num_pages: int
    num_slots: int
    page_size: int
    prefix_cache: bool
    eviction_policy: str
    num_warm: int = 0
    ring_rows: int = 0

    @property
    def max_running(self) -> int:
        return self.num_slots - 1 - self.num_warm


class CacheManager:
    def __init__(self, facts: CacheFacts, rule: ReplayRule) -> None:
        """Raises: ConfigError for an unknown eviction policy."""
        self.facts = facts
        self.rule = rule
        self.pages = PageAllocator(facts.num_pages)
        rings = RingShape(facts.page_size, facts.ring_rows, rule.window)
        self.windows = WindowSlots(facts.num_slots, rings)
        # A prompt outranks outputs until the pool has turned over once since its last use.
        self.tree = RadixTree(facts.page_size, facts.eviction_policy, facts.num_pages)
        self.leases: set[Lease] = set()
        self._query_tokens = 0
        self._hit_tokens = 0
        self._dropped_tokens = dict.fromkeys(("exactness", "logprob", "short"), 0)
        self._dedup_pages = 0

    @property
    def available_pages(self) -> int:
        """Pages that `grow` can still obtain now; those in quarantine come at a commit."""
        return self.pages.num_free + self.tree.evictable_pages

    @property
    def num_admittable(self) -> int:
        """Requests for which there is a slot now; warm windows are in nobody's way."""
        places = self.facts.max_running - len(self.leases)
        return min(places, self.windows.num_available)

    def shares_prefixes(self, shape: ReplayShape) -> bool:
        """Whether such requests adopt what is in the tree at all."""
        return self.facts.prefix_cache and not (self.rule.num_windows and shape.mode == "off")

    def keeps_windows(self, shape: ReplayShape) -> bool:
        """Whether windows of such requests are kept for others, and others' taken."""
        has_pool = self.facts.num_warm > 0 and self.facts.prefix_cache
        return has_pool and self.rule.shares_windows(shape)

    def probe(
        self,
        ns: Namespace,
        tokens: array[int],
        limit: int,
        shape: ReplayShape,
        origin: Origin = FRESH,
    ) -> PrefixHit:
        """The hit that `admit` would take now. Pure; O(matched tokens / page) memcmp's (T8).

        `tokens`: all known ids. `limit`: at most `len(tokens) - 1`, less when earlier rows must be
        computed (B26, B28)."""
        return self._look(ns, tokens, limit, shape, origin)[0]

    def admit(
        self,
        ns: Namespace,
        tokens: array[int],
        limit: int,
        shape: ReplayShape,
        reserve_pages: int,
        origin: Origin = FRESH,
    ) -> Admission | None:
        """Pin the hit and take a slot, or return None with nothing changed (B30).

        `reserve_pages`: all pages the request is expected to use counted from position 0, adopted
        ones included, plus the scheduler's headroom. It is a check, not an allocation: the hit is
        subtracted from it, and from what is evictable (T24); `grow` takes pages."""
        if self.num_admittable < 1:
            return None
        hit, found = self._look(ns, tokens, limit, shape, origin)
        if not self._has_pages(reserve_pages, hit, found):
            return None
        got = self.tree.pin(ns, tokens, hit.length, is_resume=not origin.is_counted)
        resumed = origin.resumed_prompt_len
        prompt_len = len(tokens) if resumed is None else resumed
        lease = Lease(
            slot=self.windows.take(hit.source),
            pages=got.pages,
            pin=got.pin,
            protected_len=hit.length,
            prompt_len=prompt_len,
            approx=self._generation(got.approx, hit, shape, prompt_len),
            shape=shape,
        )
        self.leases.add(lease)
        if origin.is_counted:
            self._count(len(tokens), hit)
        return Admission(hit, lease)

    def fits(
        self,
        ns: Namespace,
        tokens: array[int],
        limit: int,
        shape: ReplayShape,
        reserve_pages: int,
        origin: Origin = FRESH,
    ) -> bool:
        """Whether `admit` would admit now. Pure."""
        if self.num_admittable < 1:
            return False
        return self._has_pages(reserve_pages, *self._look(ns, tokens, limit, shape, origin))

    def grow(self, lease: Lease, num_tokens: int) -> array[int] | None:
        """Private pages so that positions below `num_tokens` have one: the new ids, to be written
        from index `len(lease.pages) - len(result)`; empty when there are enough. None, with
        nothing changed, when free and evictable pages do not suffice (T24)."""
        count = -(-num_tokens // self.facts.page_size) - len(lease.pages)
        if count <= 0:
            return ids()
        if count > self.available_pages:
            return None
        self.evict(count - self.pages.num_free)
        pages = self.pages.take(count)
        if pages is None:
            raise InvariantBroken("T4: evictable pages could not be evicted")
        lease.pages.extend(pages)
        return pages

    def publish(
        self,
        lease: Lease,
        tokens: array[int],
        upto: int,
        step_in_flight: int | None,
        *,
        is_final: bool = False,
        is_awaited: bool = False,
    ) -> list[tuple[int, array[int]]]:
        """Give the full pages below `upto` to the tree; return page-table updates (first, pages).

        `tokens`: known ids, at least `upto`. `upto`: rows below it are committed (T13).
        `step_in_flight`: newest launched step that is not committed; the duplicates that the tree
        did not take are free after it (T14). `is_final`: the last call before `release`; exact
        requests publish only then, since they must not be rebound while running (T16). When others
        wait for the pages (`is_awaited`) they do so earlier, if the tree has none of them: then it
        takes them as they are."""
        if not self.facts.prefix_cache:
            return []
        if self.rule.is_deterministic(lease.shape) and not is_final:
            first = lease.protected_len // self.facts.page_size
            if not is_awaited or self.tree.goes_on(lease.pin, tokens, first):
                return []
        if upto > len(lease.pages) * self.facts.page_size:
            raise InvariantBroken(f"publish up to {upto} with {len(lease.pages)} pages")
        moved: list[tuple[int, array[int]]] = []
        for end, approx in self._runs(lease, upto):
            moved += self._publish_run(lease, tokens, end, approx, step_in_flight)
        return moved

    def _runs(self, lease: Lease, upto: int) -> Iterator[tuple[int, int]]:
        """(end in pages, B34 generation) of what is to be published of rows below `upto`. Of
        canonical requests: whole segments of the prompt, each by what lies behind it."""
        size, shape = self.facts.page_size, lease.shape
        if not shape.grid:
            yield upto // size, lease.approx
            return
        for end in segment_ends(shape.grid, upto, lease.prompt_len):
            yield end // size, self.rule.generation(shape, end - shape.grid)

    def _publish_run(
        self, lease: Lease, tokens: array[int], end: int, approx: int, step_in_flight: int | None
    ) -> list[tuple[int, array[int]]]:
        size = self.facts.page_size
        start = lease.protected_len // size
        if end <= start:
            return []
        own = lease.pages[start:end]
        run = Run(tokens, start, end, own, lease.prompt_len // size, approx)
        done = self.tree.publish(lease.pin, run)
        duplicates = done.retired
        for first, pages in done.rebound:
            duplicates.extend(lease.pages[first : first + len(pages)])
            lease.pages[first : first + len(pages)] = pages
            self._dedup_pages += len(pages)
        old, lease.pin = lease.pin, done.pin
        self.tree.unpin(old)
        lease.protected_len = end * size
        lease.approx = max(lease.approx, done.approx)
        self._retire(duplicates, step_in_flight)
        return done.rebound

    def release(
        self, lease: Lease, in_flight_step: int | None, window: Window | None = None
    ) -> None:
        """End a lease (finish, abort, preemption). Publish first what is worth keeping (T36, T43).
        `window`: what the slot holds; it stays warm when that serves a hit.

        Published pages are evictable at once: a step in flight only reads them, and a later writer
        runs after it. Private pages and the slot, which it may write, wait for its commit (T31).
        Raises: InvariantBroken the second time (T32)."""
        if lease not in self.leases:
            raise InvariantBroken(f"lease of slot {lease.slot} is released twice")
        self.leases.remove(lease)
        self.tree.unpin(lease.pin)
        self._retire(lease.pages[lease.protected_len // self.facts.page_size :], in_flight_step)
        self.windows.give_up(lease.slot, in_flight_step, window)

    def committed(self, step: int) -> None:
        """Step `step` is complete: what waited for it or an earlier one is free."""
        self.pages.release(step)
        self.windows.committed(step)

    def evict(self, count: int) -> int:
        """Move up to `count` unpinned pages from the tree to the free list; returns how many."""
        freed = self.tree.evict(count)
        self.pages.give_back(freed)
        return len(freed)

    def flush(self) -> bool:
        """Empty the tree and the warm slots. False, with nothing changed, while a lease is open
        (T25)."""
        if self.leases:
            return False
        self.windows.clear()
        self.pages.give_back(self.tree.flush())
        return True

    def release_sessions(self, sessions: frozenset[str], owner: Namespace) -> None:
        """See `WarmWindows.release`; the tree knows no sessions."""
        self.windows.warm.release(sessions, owner)

    def counters(self) -> dict[str, float]:
        """Totals since start, in tokens or pages; resumed requests are not counted (B37)."""
        dropped = {
            f"prefix_hit_dropped_tokens{{reason={reason}}}": float(count)
            for reason, count in self._dropped_tokens.items()
        }
        return (dropped | self.windows.counters()) | {
            "prefix_query_tokens": float(self._query_tokens),
            "prefix_hit_tokens": float(self._hit_tokens),
            "dedup_pages": float(self._dedup_pages),
            "evicted_pages{kind=leaf}": float(self.tree.evicted_leaf_pages),
            "evicted_pages{kind=tail}": float(self.tree.evicted_tail_pages),
        }

    def gauges(self) -> dict[str, float]:
        """Read from state when asked."""
        resident = self.tree.evictable_pages + self.tree.protected_pages
        return self.windows.gauges() | {
            "pages{state=free}": float(self.pages.num_free),
            "pages{state=evictable}": float(self.tree.evictable_pages),
            "pages{state=protected}": float(self.tree.protected_pages),
            "pages{state=private}": float(self.pages.num_taken - resident),
            "pages{state=quarantine}": float(self.pages.num_quarantined),
            "tree_nodes": float(self.tree.num_nodes),
            "tree_nonexact_ratio": self.tree.approx_pages / resident if resident else 0.0,
        }

    def check(self) -> None:
        """Raises: InvariantBroken when a rule of T1-T7, T15 or T20 does not hold. O(pages)."""
        self.tree.check()
        self.pages.check()
        self.windows.slots.check()
        check_conservation(self.pages, self.tree, self.leases, self.facts.page_size)
        check_slots(self.windows.slots, self.leases, self.windows.warm)
        check_leases(self.tree, self.leases, self.facts.page_size)

    def _look(
        self, ns: Namespace, tokens: array[int], limit: int, shape: ReplayShape, origin: Origin
    ) -> tuple[PrefixHit, Match]:
        size = self.facts.page_size
        if not self.shares_prefixes(shape):
            return PrefixHit(0, 0, ()), _NO_MATCH
        found = self.tree.probe(ns, tokens, len(tokens) - 1)
        unit = shape.grid // size or 1  # canonical hits end at points only
        allowed = found.exact if self.rule.needs_exact(shape) else found.pages
        allowed -= allowed % unit
        capped = min(allowed, max(limit, 0) // size)
        capped -= capped % unit
        length = self.rule.adopt(shape, capped * size)
        source = self._source(ns, tokens, capped * size, shape, origin)
        if source is not None and self.rule.is_cheaper(shape, source.length, length):
            length = source.length
        else:
            source = None
        lost = (
            ("exactness", (found.pages - allowed) * size),
            ("logprob", (allowed - capped) * size),
            ("short", capped * size - length),
        )
        hit = PrefixHit(
            length=length,
            start=length if source else self.rule.start(shape, length),
            dropped=tuple((reason, count) for reason, count in lost if count),
            source=source,
        )
        return hit, found

    def _source(
        self, ns: Namespace, tokens: array[int], limit: int, shape: ReplayShape, origin: Origin
    ) -> WindowSource | None:
        """The window that serves the longest hit: one that is warm, or that of a fork's parent."""
        if limit < self.facts.page_size or not self.keeps_windows(shape):
            return None
        is_exact = self.rule.needs_whole(shape)
        return self.windows.find(ns, tokens, limit, origin, is_exact=is_exact)

    def _has_pages(self, reserve: int, hit: PrefixHit, found: Match) -> bool:
        adopted = hit.length // self.facts.page_size
        return reserve - adopted <= self.available_pages - found.unpinned(adopted)

    def _generation(self, adopted: int, hit: PrefixHit, shape: ReplayShape, prompt_len: int) -> int:
        """B34: 0 when the state will equal a cold run's. After a replay one more than the adopted
        nodes'; with a window that was there, the larger of nodes' and window's. Of canonical
        requests a function of the prompt's length, hit or not."""
        if shape.grid:
            points = count_points(shape.grid, prompt_len)
            return self.rule.generation(shape, points * shape.grid)
        if hit.source is not None:
            return max(adopted, hit.source.approx)
        return 0 if not adopted and self.rule.is_exact(shape, hit.length) else 1 + adopted

    def _count(self, num_tokens: int, hit: PrefixHit) -> None:
        self._query_tokens += num_tokens
        self._hit_tokens += hit.length
        for reason, count in hit.dropped:
            self._dropped_tokens[reason] += count

    def _retire(self, pages: array[int], step: int | None) -> None:
        if step is None:
            self.pages.give_back(pages)
        else:
            self.pages.quarantine(pages, step)
