"""PageAllocator: which page ids are free, taken or quarantined. Plain integers; no page contents.

Page 0 is the sink for padding rows and is never handed out (T2). A page given up while a step is in
flight waits in the quarantine of that step, because the step's page tables still name it (T31):

    free --take--> taken --give_back--> free
                   taken --quarantine(step)--> quarantined --release(step)--> free

Invariant: free + quarantined + taken = num_pages - 1, and each id is in one of the three.
"""

from __future__ import annotations

from array import array

from ..errors import InvariantBroken

SINK_PAGE = 0
_FREE, _TAKEN, _QUARANTINED = 0, 1, 2


class PageAllocator:
    """Ids `1 .. num_pages-1`, last given back first taken, so a run is reproducible."""

    __slots__ = ("num_pages", "_free", "_state", "_quarantine")

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = array("i", range(num_pages - 1, SINK_PAGE, -1))
        self._state = bytearray(num_pages)
        self._state[SINK_PAGE] = _TAKEN
        self._quarantine: dict[int, array[int]] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_quarantined(self) -> int:
        return sum(len(pages) for pages in self._quarantine.values())

    @property
    def num_taken(self) -> int:
        return self.num_pages - 1 - self.num_free - self.num_quarantined

    def take(self, count: int) -> array[int] | None:
        """`count` page ids, or None (and nothing changed) when fewer are free."""
        if count > len(self._free):
            return None
        cut = len(self._free) - count
        pages = self._free[cut:]
        del self._free[cut:]
        pages.reverse()
        for page in pages:
            self._state[page] = _TAKEN
        return pages

    def give_back(self, pages: array[int]) -> None:
        """Taken pages become free at once. Raises: InvariantBroken for a page that is not taken."""
        self._move(pages, _FREE)
        self._free.extend(reversed(pages))

    def quarantine(self, pages: array[int], step: int) -> None:
        """Taken pages become free when `release(step)` or a later step's release is called."""
        self._move(pages, _QUARANTINED)
        self._quarantine.setdefault(step, array("i")).extend(pages)

    def release(self, step: int) -> None:
        """Free what was quarantined for steps up to `step`: they have been committed."""
        for past in sorted(s for s in self._quarantine if s <= step):
            pages = self._quarantine.pop(past)
            for page in pages:
                self._state[page] = _FREE
            self._free.extend(reversed(pages))

    def check(self) -> None:
        """Raises: InvariantBroken when the lists and the states disagree (T2)."""
        states = bytearray(self._state)
        for page in self._free:  # there may be a million: no list, no set of them
            if states[page] != _FREE:
                raise InvariantBroken("free list of pages disagrees with page states")
            states[page] = _TAKEN  # a second time is a mistake, too
        waiting = [page for pages in self._quarantine.values() for page in pages]
        if any(self._state[p] != _QUARANTINED for p in waiting):
            raise InvariantBroken("quarantine of pages disagrees with page states")
        if states.count(_FREE) or states.count(_QUARANTINED) != len(waiting):
            raise InvariantBroken("a page is lost between free list and quarantine")

    def taken(self) -> list[int]:
        """All ids that are with a request or in the tree, ascending."""
        return [page for page in range(1, self.num_pages) if self._state[page] == _TAKEN]

    def _move(self, pages: array[int], state: int) -> None:
        for page in pages:
            if page == SINK_PAGE or self._state[page] != _TAKEN:
                raise InvariantBroken(f"page {page} is given up but nobody holds it")
            self._state[page] = state
