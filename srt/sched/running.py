"""RunningSet: the requests that hold pages and a slot, and every call that takes or gives pages.

One list (rule T40): requests that decode and prompts between two chunks alike, in order of
admission. Page-table changes that the cache asks for between steps wait here for the next plan; a
change is forgotten when its request gives its lease back, since the slot may then have a new owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..cache.lease import Lease
from ..cache.manager import CacheManager
from ..messages import PageUpdate
from .request import Request


class Rows(NamedTuple):
    """Running requests by what is left to run. `short` lacks a page; the rest was not looked at."""

    singles: Sequence[Request]  # one row, of a sampled token: all that decode without a grammar
    paced: Sequence[Request]  # decode with a grammar or drafts; those with forced tokens come last
    parked: Sequence[Request]  # rows of a prompt, or more than one
    short: Request | None


class RunningSet:
    __slots__ = ("requests", "_cache", "_page_size", "_updates")

    def __init__(self, cache: CacheManager) -> None:
        self.requests: list[Request] = []
        self._cache = cache
        self._page_size = cache.facts.page_size
        self._updates: list[tuple[Request, Lease, PageUpdate]] = []

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def enter(self, request: Request, lease: Lease) -> None:
        """An admitted request, whose first pages go with its slot reset."""
        request.lease, request.slot = lease, lease.slot
        request.capacity = len(lease.pages) * self._page_size
        self.requests.append(request)

    def rows(self) -> Rows:
        """Gives each request that decodes the page for its row."""
        singles: list[Request] = []
        paced: list[Request] = []
        parked: list[Request] = []
        for request in self.requests:
            left = request.known - request.next
            is_paced = request.matching is not None or request.drafts_most  # no call: a hot loop
            if left and is_paced and request.next >= request.prompt_len:
                if request.known > request.capacity and not self._grow(request, request.known):
                    return Rows(singles, paced, parked, request)
                paced.append(request)
            elif left == 1 and request.next >= request.prompt_len:
                if request.next >= request.capacity and not self._grow(request, request.next + 1):
                    return Rows(singles, paced, parked, request)
                singles.append(request)
            elif left:
                parked.append(request)
        paced.sort(key=lambda request: request.known - request.next)
        for request in paced:
            self._fit_drafts(request)
        return Rows(singles, paced, parked, None)

    def publish(self, request: Request, in_flight: int | None, *, is_final: bool = False) -> None:
        """Give the full pages of answered rows to the tree and follow it where it has its own.

        `in_flight`: newest step that is planned and not committed."""
        lease = request.lease
        assert lease is not None
        if request.computed - lease.protected_len < self._page_size:
            return
        moved = self._cache.publish(
            lease,
            request.tokens,
            request.computed,
            in_flight,
            is_final=is_final,
            is_awaited=request.has_forks,
        )
        if not is_final:
            request.approx = max(request.approx, lease.approx)
        for first, pages in moved:
            self._updates.append((request, lease, PageUpdate(request.slot, first, pages)))

    def leave(self, request: Request, in_flight: int | None) -> None:
        """The request gives back its slot and its pages; the tree keeps what is full (T36), and
        the slot its window until somebody needs the slot."""
        self.publish(request, in_flight, is_final=True)
        assert request.lease is not None
        window = request.window() if self._cache.keeps_windows(request.shape) else None
        self._cache.release(request.lease, in_flight, window)
        self.requests.remove(request)
        request.lease, request.slot, request.capacity = None, 0, 0
        request.drafts, request.ahead = (), ()

    def take_updates(self) -> list[PageUpdate]:
        """Page-table changes for the next plan, of requests that still hold the same lease."""
        updates = [update for request, lease, update in self._updates if request.lease is lease]
        self._updates.clear()
        return updates

    def _fit_drafts(self, request: Request) -> None:
        """Drafts take a page only where each running request could still have another."""
        end = request.known + len(request.drafts)
        if end <= request.capacity:
            return
        if self._cache.available_pages <= len(self.requests) or not self._grow(request, end):
            request.drafts = request.drafts[: max(0, request.capacity - request.known)]

    def _grow(self, request: Request, tokens: int) -> bool:
        lease = request.lease
        assert lease is not None
        pages = self._cache.grow(lease, tokens)
        if pages is None:
            return False
        first = len(lease.pages) - len(pages)
        self._updates.append((request, lease, PageUpdate(request.slot, first, pages)))
        request.capacity = len(lease.pages) * self._page_size
        return True
