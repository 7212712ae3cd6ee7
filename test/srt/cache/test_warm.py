"""WarmWindows: which hits a kept window serves, whose it is taken for, and which one is lost first.

Rings of 18 rows, a window of 8, pages of 4: of 18 rows the last 7 below a hit are its window.
"""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.warm import RingShape, WarmWindows, Window
from treadle.srt.messages import SlotId

RINGS = RingShape(page_size=4, rows=18, window=8)
TEXT = array("i", range(100))


def window(end: int, *, written: int = 0, session: str | None = None, **changes: object) -> Window:
    fields: dict[str, object] = {"ns": (), "start": 0, "approx": 0} | changes
    ids = TEXT[:end].tobytes()
    return Window(ids=ids, written=written or end, session=session, **fields)  # type: ignore[arg-type]


def find(warm: WarmWindows, limit: int = 99, **changes: object) -> tuple[int, int] | None:
    """(slot, length) of what is found."""
    options: dict[str, object] = {"ns": (), "tokens": TEXT, "session": None, "is_exact": False}
    found = warm.find(limit=limit, **options | changes)  # type: ignore[arg-type]
    return None if found is None else (found.slot, found.length)


@pytest.fixture
def warm() -> WarmWindows:
    return WarmWindows(RINGS)


@pytest.mark.parametrize(
    ("end", "written", "limit", "length"),
    [
        (52, 52, 99, 52),
        (55, 55, 99, 52),  # the next turn adopts floor_P(end)
        (55, 56, 99, 52),  # one decode row was in flight (T33)
        (55, 63, 99, 52),  # 18 rows hold [45, 63): the window of 52 is [45, 52)
        (55, 64, 99, 0),  # and is not whole any more
        (55, 55, 51, 48),  # a shorter hit whose window is [41, 48)
        (55, 55, 47, 44),  # just: the ring is [37, 55) and the window [37, 44)
        (56, 56, 47, 0),
        (17, 17, 15, 12),  # the ring has not come round: all rows are there
        (17, 17, 3, 0),
        (3, 3, 99, 0),
    ],
)
def test_window_serves_hits_whose_rows_are_still_in_the_ring(warm, end, written, limit, length):
    """B5, B24."""
    warm.keep(SlotId(3), window(end, written=written), None)
    assert find(warm, limit) == ((3, length) if length else None)


def test_windows_of_released_sessions_are_lost_before_those_of_others(warm):
    """They serve as before until then."""
    for slot, session, ns in ((1, "a", ()), (2, "b", ()), (3, "b", (("owner", "x"),))):
        warm.keep(SlotId(slot), window(52, session=session, ns=ns), None)
    warm.release(frozenset({"b"}), (("owner", "y"),))
    warm.release(frozenset({"b"}), ())
    assert find(warm, session="b") == (2, 52)
    assert [warm.reclaim() for _ in range(3)] == [2, 3, 1]


def test_the_owner_bounds_what_is_released(warm):
    for slot, owner in ((1, "x"), (2, "y")):
        ns = (("owner", owner), ("salt", "s"))
        warm.keep(SlotId(slot), window(52, session="a", ns=ns), None)
    warm.release(frozenset({"a"}), (("owner", "y"),))
    assert [warm.reclaim() for _ in range(2)] == [2, 1]


def test_rows_below_the_hit_of_its_own_admission_are_not_offered(warm):
    """A staircase replay leaves the upper layers without them (B40)."""
    warm.keep(SlotId(3), window(17, start=12), None)
    assert find(warm, 12) == (3, 12)
    assert find(warm, 11) is None


def test_window_that_serves_no_hit_is_not_kept(warm):
    assert not warm.keep(SlotId(1), window(55, written=64), None)
    assert not warm.keep(SlotId(1), window(14, start=13), None)
    assert warm.keep(SlotId(1), window(16, start=13), None)
    assert len(warm) == warm.num_ready == 1


def test_window_of_other_tokens_namespace_or_exactness_is_not_found(warm):
    """T26, B32: the path is namespace and every token, not the last page alone."""
    warm.keep(SlotId(3), window(52, approx=1), None)
    other = TEXT[:]
    other[5] = 99
    assert find(warm, tokens=other) is None
    assert find(warm, ns=(("salt", "x"),)) is None
    assert find(warm, is_exact=True) is None
    assert find(warm) == (3, 52)


def test_divergence_inside_the_last_rows_takes_the_window_before_it(warm):
    """A template that rewrites the end of the last output: the hit ends before it."""
    warm.keep(SlotId(3), window(55), None)
    other = TEXT[:]
    other[50] = 7
    assert find(warm, tokens=other) == (3, 48)


def test_longest_then_least_approximate_then_same_session_then_newest(warm):
    """The session decides among equals only (D18)."""
    warm.keep(SlotId(7), window(52, approx=1), None)
    warm.keep(SlotId(8), window(52, approx=2, session="a"), None)
    assert find(warm, session="a") == (7, 52)
    warm.keep(SlotId(1), window(52, session="a"), None)
    warm.keep(SlotId(2), window(52), None)
    assert find(warm) == (2, 52)
    assert find(warm, session="a") == (1, 52)
    warm.keep(SlotId(3), window(56, session="b"), None)
    assert find(warm, session="a") == (3, 56)
    warm.touch(SlotId(1))
    assert find(warm, 55) == (1, 52)


def test_slot_is_nobodys_before_the_step_that_writes_it(warm):
    """T31, S10."""
    warm.keep(SlotId(1), window(52, written=53), 7)
    warm.committed(6)
    assert (find(warm), warm.reclaim(), warm.num_ready, len(warm)) == (None, None, 0, 1)
    warm.committed(7)
    assert (find(warm), warm.num_ready) == ((1, 52), 1)
    assert warm.reclaim() == 1
    assert (warm.num_ready, len(warm)) == (0, 0)


def test_the_newest_window_of_each_session_is_lost_last(warm):
    for slot, session in enumerate(("a", "a", None, "b", None), 1):
        warm.keep(SlotId(slot), window(52, session=session), None)
    warm.keep(SlotId(6), window(52, session="a", ns=(("salt", "x"),)), None)
    assert [warm.reclaim() for _ in range(7)] == [1, 3, 5, 2, 4, 6, None]


def test_windows_in_use_are_lost_after_others(warm):
    for slot in (1, 2, 3):
        warm.keep(SlotId(slot), window(52), None)
    warm.touch(SlotId(1))
    assert [warm.reclaim() for _ in range(3)] == [2, 3, 1]


def test_clear_says_what_each_slot_waits_for(warm):
    """S6, T25."""
    warm.keep(SlotId(1), window(52), None)
    warm.keep(SlotId(2), window(52), 4)
    assert warm.clear() == [(1, None), (2, 4)]
    assert (len(warm), warm.num_ready, find(warm)) == (0, 0, None)
