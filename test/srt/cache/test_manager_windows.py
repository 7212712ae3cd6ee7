"""CacheManager and windows that are kept: adoption, provenance, slots (section 2, B5, B34)."""

from __future__ import annotations

from treadle.srt.cache.replay import ReplayShape
from treadle.srt.cache.warm import Window

FLAT = ReplayShape("bounded", 0, 1)
EXACT = ReplayShape("exact", 3, 1)


def end(manager, tokens, shape=FLAT, *, leaves_window=True):
    """A finished request over `tokens`."""
    got = manager.admit((), tokens, len(tokens) - 1, shape, 0)
    assert manager.grow(got.lease, len(tokens)) is not None
    manager.publish(got.lease, tokens, len(tokens), None, is_final=True)
    window = Window((), tokens.tobytes(), got.hit.length, len(tokens), got.lease.approx, None)
    manager.release(
        got.lease, None, window if leaves_window and manager.keeps_windows(shape) else None
    )
    manager.check()


def test_next_turn_goes_on_with_the_warm_window(make_manager, make_ids):
    """B5, B34, section 2: R = 0, exact although the hit is shorter than an exact replay, and the
    generation is the window's and the nodes'."""
    manager = make_manager(windows=2, warm=1)
    first = make_ids(1, 14)
    end(manager, first)
    second = make_ids(1, 14, then=2, more=6)
    for shape in (FLAT, EXACT):
        hit = manager.probe((), second, 19, shape)
        assert (hit.length, hit.replayed) == (12, 0)
        assert hit.source is not None
    assert manager.probe((), second, 19, ReplayShape("off", 0, 1)).length == 0
    got = manager.admit((), second, 19, EXACT, 0)
    assert (got.hit, got.lease.approx) == (hit, 0)
    manager.check()


def test_window_of_a_bounded_replay_is_approximate_and_not_for_exact_requests(
    make_manager, make_ids
):
    """B32, B34."""
    manager = make_manager(windows=2, warm=1)
    end(manager, make_ids(1, 24), leaves_window=False)
    tokens = make_ids(1, 24, then=2, more=9)
    end(manager, tokens)
    after = make_ids(1, 24, then=2, more=12)
    assert manager.probe((), after, 35, EXACT).source is None
    got = manager.admit((), after, 35, FLAT, 0)
    assert (got.hit.length, got.hit.replayed, got.lease.approx) == (32, 0, 1)
    manager.check()


def test_the_cheaper_of_a_longer_hit_with_replay_and_the_window_is_taken(make_manager, make_ids):
    """Rows decide: 4 replayed rows in two of three layers cost 2 (the top window layer puts out
    none), so a hit that is 4 longer wins."""
    manager = make_manager(windows=2, window=4, warm=1)
    end(manager, make_ids(1, 24))
    tokens = make_ids(1, 30)
    assert manager.probe((), tokens, 29, FLAT).length == 24
    end(manager, make_ids(1, 28), leaves_window=False)
    got = manager.probe((), tokens, 29, FLAT)
    assert (got.length, got.source is None) == (28, True)


def test_without_room_for_windows_every_slot_is_given_back(make_manager, make_ids):
    manager = make_manager(windows=2, warm=0)
    end(manager, make_ids(1, 14))
    assert manager.gauges()["window_slots{state=warm}"] == 0
    assert manager.probe((), make_ids(1, 14, then=2, more=6), 19, FLAT).source is None


def test_evicted_pages_leave_the_window_without_use(make_manager, make_ids):
    """It pins nothing and nobody finds it: no hit of its length is there."""
    manager = make_manager(windows=2, warm=1)
    end(manager, make_ids(1, 14))
    manager.evict(1)
    assert manager.probe((), make_ids(1, 14, then=2, more=6), 19, FLAT).length in (0, 8)
    manager.evict(99)
    assert manager.probe((), make_ids(1, 14, then=2, more=6), 19, FLAT).length == 0
    manager.check()


def test_no_more_run_than_allowed_whatever_is_free(make_manager, make_ids):
    """S1: slots of windows are not places to run."""
    manager = make_manager(num_slots=4, windows=2, warm=2)
    assert manager.num_admittable == 1
    assert manager.admit((), make_ids(1, 8), 7, FLAT, 0) is not None
    assert manager.num_admittable == 0
    assert manager.admit((), make_ids(2, 8), 7, FLAT, 0) is None


def test_flush_forgets_the_windows(make_manager, make_ids):
    """S6, T25."""
    manager = make_manager(windows=2, warm=1)
    end(manager, make_ids(1, 14))
    assert manager.flush()
    assert manager.gauges()["window_slots{state=warm}"] == 0
    manager.check()


def test_awaited_pages_of_an_exact_request_are_published_unless_it_would_be_rebound(
    make_manager, make_ids
):
    """T16: forks need the parent's pages while it runs; its page table may not change for that."""
    manager = make_manager(windows=2, warm=1)
    tokens = make_ids(1, 14)
    one, two = (manager.admit((), tokens, 13, EXACT, 0).lease for _ in range(2))
    for lease in (one, two):
        assert manager.grow(lease, 14) is not None
    assert manager.publish(one, tokens, 14, None) == []
    assert one.protected_len == 0
    assert manager.publish(one, tokens, 14, None, is_awaited=True) == []
    assert one.protected_len == 12
    pages = two.pages[:]
    assert manager.publish(two, tokens, 14, None, is_awaited=True) == []
    assert (two.protected_len, two.pages) == (0, pages)
    manager.check()
