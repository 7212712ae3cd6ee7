"""SlotAllocator: which request slots are free, taken or quarantined.

Slot 0 is the sink of padding rows and is never handed out (S1). A slot given up while a step is in
flight is reused only after that step's commit (T31, S10): its page-table row, ring tags and sampler
state may still be written by the step. Invariant: every slot but 0 is in exactly one of the three.
"""

from __future__ import annotations

from ..errors import InvariantBroken
from ..messages import SlotId

SINK_SLOT = SlotId(0)


class SlotAllocator:
    """Ids `1 .. num_slots-1`, last given back first taken."""

    __slots__ = ("num_slots", "_free", "_taken", "_quarantine")

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = [SlotId(i) for i in range(num_slots - 1, SINK_SLOT, -1)]
        self._taken: set[SlotId] = set()
        self._quarantine: list[tuple[int, SlotId]] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_quarantined(self) -> int:
        return len(self._quarantine)

    @property
    def num_taken(self) -> int:
        return len(self._taken)

    def take(self) -> SlotId | None:
        if not self._free:
            return None
        slot = self._free.pop()
        self._taken.add(slot)
        return slot

    def give_back(self, slot: SlotId) -> None:
        """Raises: InvariantBroken when nobody holds the slot."""
        self._drop(slot)
        self._free.append(slot)

    def quarantine(self, slot: SlotId, step: int) -> None:
        """The slot is free again after `release(step)`."""
        self._drop(slot)
        self._quarantine.append((step, slot))

    def release(self, step: int) -> None:
        """Free the slots that were waiting for steps up to `step`."""
        self._free.extend(slot for past, slot in self._quarantine if past <= step)
        self._quarantine = [entry for entry in self._quarantine if entry[0] > step]

    def check(self) -> None:
        """Raises: InvariantBroken when a slot is lost or in two places."""
        ids = [*self._free, *self._taken, *(slot for _, slot in self._quarantine)]
        if sorted(ids) != list(range(1, self.num_slots)):
            raise InvariantBroken("a slot is lost or in two places")

    def holds(self, slot: SlotId) -> bool:
        """Whether the slot is with a request."""
        return slot in self._taken

    def _drop(self, slot: SlotId) -> None:
        if slot not in self._taken:
            raise InvariantBroken(f"slot {slot} is given up but nobody holds it")
        self._taken.remove(slot)
