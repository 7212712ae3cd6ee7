"""PageAllocator: conservation, quarantine until the step's commit, no double hand-out."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.srt.cache.pages import PageAllocator
from treadle.srt.errors import InvariantBroken


def test_sink_page_is_never_handed_out():
    """T2."""
    pages = PageAllocator(8)
    taken = pages.take(7)
    assert taken is not None and sorted(taken) == list(range(1, 8))
    assert pages.take(1) is None


def test_pages_come_in_ascending_runs():
    """Neighbouring positions get neighbouring pages, also after a run came back."""
    pages = PageAllocator(9)
    assert list(pages.take(3) or ()) == [1, 2, 3]
    pages.give_back(array("i", [1, 2, 3]))
    assert list(pages.take(5) or ()) == [1, 2, 3, 4, 5]


def test_failed_take_changes_nothing():
    pages = PageAllocator(4)
    assert pages.take(4) is None
    assert pages.num_free == 3


def test_quarantined_page_is_free_only_after_its_step():
    """T31."""
    pages = PageAllocator(4)
    taken = pages.take(3)
    assert taken is not None
    pages.quarantine(taken[:2], 5)
    pages.quarantine(taken[2:], 6)
    pages.release(4)
    assert (pages.num_free, pages.num_quarantined) == (0, 3)
    pages.release(5)
    assert (pages.num_free, pages.num_quarantined) == (2, 1)
    pages.release(9)
    assert (pages.num_free, pages.num_quarantined) == (3, 0)


@pytest.mark.parametrize("page", [0, 1, 3])
def test_giving_up_a_page_that_is_not_taken_is_caught(page):
    """T2: 0 is the sink, 1 is free again, 3 waits in quarantine."""
    pages = PageAllocator(4)
    taken = pages.take(3)
    assert taken is not None
    pages.give_back(array("i", [1]))
    pages.quarantine(array("i", [3]), 0)
    with pytest.raises(InvariantBroken):
        pages.give_back(array("i", [page]))
    with pytest.raises(InvariantBroken):
        pages.quarantine(array("i", [page]), 1)


@given(st.lists(st.tuples(st.sampled_from("tgqr"), st.integers(0, 6)), max_size=60))
@settings(max_examples=150)
def test_pages_are_conserved(ops):
    """T5 for the allocator alone, against plain sets."""
    pages = PageAllocator(10)
    held: list[int] = []
    waiting: list[tuple[int, int]] = []
    for op, n in ops:
        if op == "t":
            taken = pages.take(n)
            assert (taken is None) == (n > 9 - len(held) - len(waiting))
            held += taken or []
        elif op == "g":
            pages.give_back(array("i", held[:n]))
            held = held[n:]
        elif op == "q":
            pages.quarantine(array("i", held[:1]), n)
            waiting += [(n, page) for page in held[:1]]
            held = held[1:]
        else:
            pages.release(n)
            waiting = [entry for entry in waiting if entry[0] > n]
        pages.check()
        assert pages.taken() == sorted(held)
        assert pages.num_quarantined == len(waiting)
        assert pages.num_free + pages.num_quarantined + pages.num_taken == 9


def test_check_sees_a_page_that_is_free_twice():
    pages = PageAllocator(6)
    pages.check()
    pages._free.append(pages._free[0])
    with pytest.raises(InvariantBroken, match="free list"):
        pages.check()


def test_check_sees_a_lost_page():
    pages = PageAllocator(4)
    pages._free.pop()
    with pytest.raises(InvariantBroken):
        pages.check()
