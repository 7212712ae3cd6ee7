"""SlotAllocator: one owner per slot, reuse only after the step that may still write it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.srt.cache.slots import SlotAllocator
from treadle.srt.errors import InvariantBroken


def test_sink_slot_is_never_handed_out():
    """S1."""
    slots = SlotAllocator(3)
    assert {slots.take(), slots.take()} == {1, 2}
    assert slots.take() is None


def test_slot_is_reused_only_after_the_step_that_may_write_it():
    """T31, S10."""
    slots = SlotAllocator(2)
    slot = slots.take()
    assert slot is not None
    slots.quarantine(slot, 7)
    slots.release(6)
    assert slots.take() is None
    slots.release(7)
    assert slots.take() == slot


def test_slot_given_up_twice_is_caught():
    slots = SlotAllocator(3)
    slot = slots.take()
    assert slot is not None
    slots.give_back(slot)
    with pytest.raises(InvariantBroken):
        slots.give_back(slot)
    with pytest.raises(InvariantBroken):
        slots.quarantine(slot, 0)


@given(st.lists(st.tuples(st.sampled_from("tgqr"), st.integers(0, 4)), max_size=50))
@settings(max_examples=100)
def test_slots_are_conserved(ops):
    slots = SlotAllocator(5)
    held = []
    for op, n in ops:
        if op == "t":
            slot = slots.take()
            assert slot not in held
            held += [] if slot is None else [slot]
        elif op == "r":
            slots.release(n)
        elif held:
            slot = held.pop(n % len(held))
            slots.give_back(slot) if op == "g" else slots.quarantine(slot, n)
        slots.check()
        assert all(slots.holds(slot) for slot in held)
        assert slots.num_taken == len(held)
        assert slots.num_free + slots.num_quarantined + slots.num_taken == 4
