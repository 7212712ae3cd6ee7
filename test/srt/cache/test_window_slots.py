"""WindowSlots: free slots first, then the window's own, then the one that is worth least."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.lease import FRESH, Origin
from treadle.srt.cache.warm import RingShape, Window, WindowSource
from treadle.srt.cache.window_slots import WindowSlots
from treadle.srt.errors import InvariantBroken
from treadle.srt.messages import SlotId

TEXT = array("i", range(100))


def window(end: int, ns: tuple[tuple[str, str], ...] = (), approx: int = 0) -> Window:
    return Window(ns, TEXT[:end].tobytes(), 0, end, approx, None)


@pytest.fixture
def slots() -> WindowSlots:
    """Three slots: 2 is warm with a window of 52, 3 with one of 20, 1 is free."""
    made = WindowSlots(4, RingShape(4, 16, 8))
    taken = [made.take(None) for _ in range(3)]
    made.give_up(taken[1], None, window(52))
    made.give_up(taken[2], None, window(20))
    made.give_up(taken[0], None, None)
    return made


def counts(slots: WindowSlots) -> tuple[float, ...]:
    """Takeovers, copies, reclaims."""
    names = ("window_takeovers", "window_copies", "window_reclaims")
    return tuple(slots.counters()[name] for name in names)


def test_window_is_copied_to_a_free_slot_and_stays(slots):
    source = slots.find((), TEXT, 99, FRESH, is_exact=False)
    assert source == WindowSource(SlotId(2), 52, 0, is_live=False)
    assert slots.take(source) == 1
    assert slots.find((), TEXT, 99, FRESH, is_exact=False) == source
    assert counts(slots) == (0, 1, 0)


def test_without_a_free_slot_the_window_s_own_is_taken_over(slots):
    source = slots.find((), TEXT, 99, FRESH, is_exact=False)
    slots.take(None)
    assert slots.take(source) == 2
    found = slots.find((), TEXT, 99, FRESH, is_exact=False)
    assert found is not None and found.slot == 3
    assert counts(slots) == (1, 0, 0)


def test_warm_slots_are_free_for_who_needs_one(slots):
    assert slots.num_available == 3
    assert [slots.take(None) for _ in range(3)] == [1, 2, 3]
    assert counts(slots) == (0, 0, 2)
    with pytest.raises(InvariantBroken):
        slots.take(None)


def test_a_fork_copies_from_its_running_parent(slots):
    parent = SlotId(9), window(56)
    source = slots.find((), TEXT, 99, Origin(parent=parent), is_exact=False)
    assert source == WindowSource(SlotId(9), 56, 0, is_live=True)
    assert [slots.take(source) for _ in range(2)] == [1, 2]  # never the parent's own slot
    assert counts(slots) == (0, 2, 1)


@pytest.mark.parametrize(
    "parent", [window(48), window(56, ns=(("salt", "x"),)), window(56, approx=1)]
)
def test_parent_that_serves_less_another_scope_or_not_exactly_is_not_used(slots, parent):
    found = slots.find((), TEXT, 99, Origin(parent=(SlotId(9), parent)), is_exact=True)
    assert found is not None and found.slot == 2


def test_clear_frees_every_warm_slot_after_its_step(slots):
    slots.give_up(slots.take(None), 5, window(52))
    slots.clear()
    gauges = slots.gauges()
    assert gauges["window_slots{state=warm}"] == gauges["window_slots{state=taken}"] == 0
    assert gauges["window_slots{state=quarantine}"] == 1
    slots.committed(5)
    assert slots.slots.num_free == 3
