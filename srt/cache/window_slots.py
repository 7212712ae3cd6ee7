"""WindowSlots: who has which slot, and which slot's window a request goes on from.

    free --take--> with a lease --give_up--> warm ----------take, reclaimed or taken over---------.
      ^                            |          | clear                                              |
      '------ quarantine (T31) <---+----------'                          with a lease again <------'

Invariant: each slot but the sink is free, in quarantine, with one lease, or warm (`check_slots`).
"""

from __future__ import annotations

from array import array

from ..errors import InvariantBroken
from ..messages import SlotId
from .lease import Origin
from .node import Namespace
from .slots import SlotAllocator
from .warm import RingShape, WarmWindows, Window, WindowSource

COUNTS = ("window_donations", "window_takeovers", "window_copies", "window_reclaims")


class WindowSlots:
    __slots__ = ("slots", "warm", "_counts")

    def __init__(self, num_slots: int, rings: RingShape) -> None:
        self.slots = SlotAllocator(num_slots)
        self.warm = WarmWindows(rings)
        self._counts = dict.fromkeys(COUNTS, 0)

    @property
    def num_available(self) -> int:
        """Slots that `take` can hand out now."""
        return self.slots.num_free + self.warm.num_ready

    def find(
        self, ns: Namespace, tokens: array[int], limit: int, origin: Origin, *, is_exact: bool
    ) -> WindowSource | None:
        """The window that serves the longest hit of at most `limit` tokens: one that is warm, or
        that of a fork's parent. `is_exact`: no approximate one. Pure."""
        found = self.warm.find(ns, tokens, limit, origin.session, is_exact=is_exact)
        if origin.parent is None:
            return found
        slot, window = origin.parent
        length = self.warm.shape.serves(window, tokens, limit) if window.ns == ns else 0
        if (is_exact and window.approx) or length <= (found.length if found else 0):
            return found
        return WindowSource(slot, length, window.approx, is_live=True)

    def take(self, source: WindowSource | None) -> SlotId:
        """A slot for a request that goes on from `source`: a free one; for lack of it the slot of
        a warm source itself, which is lost to the request; else that of the window which is worth
        least. Raises: InvariantBroken when `num_available` is 0."""
        slot = self.slots.take()
        if source is not None and not source.is_live and slot is None:
            self.warm.take(source.slot)
            self._counts["window_takeovers"] += 1
            return source.slot
        if source is not None:
            self._counts["window_copies"] += 1
            if not source.is_live:
                self.warm.touch(source.slot)
        if slot is None:
            slot = self.warm.reclaim()
            self._counts["window_reclaims"] += 1
        if slot is None:
            raise InvariantBroken("no slot for a request that could be admitted")
        return slot

    def give_up(self, slot: SlotId, step: int | None, window: Window | None) -> None:
        """A lease ends. The slot stays warm when `window`, which it holds, serves a hit. `step`:
        newest in flight, which may still write it."""
        if window is not None and self.warm.keep(slot, window, step):
            self._counts["window_donations"] += 1
        else:
            self._free(slot, step)

    def committed(self, step: int) -> None:
        self.slots.release(step)
        self.warm.committed(step)

    def clear(self) -> None:
        """No window is warm any more: what it was computed from is void."""
        for slot, step in self.warm.clear():
            self._free(slot, step)

    def counters(self) -> dict[str, float]:
        return {name: float(count) for name, count in self._counts.items()}

    def gauges(self) -> dict[str, float]:
        return {
            "window_slots{state=free}": float(self.slots.num_free),
            "window_slots{state=taken}": float(self.slots.num_taken - len(self.warm)),
            "window_slots{state=warm}": float(len(self.warm)),
            "window_slots{state=quarantine}": float(self.slots.num_quarantined),
        }

    def _free(self, slot: SlotId, step: int | None) -> None:
        if step is None:
            self.slots.give_back(slot)
        else:
            self.slots.quarantine(slot, step)
