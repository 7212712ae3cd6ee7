"""The map from session to replica is bounded in time and size (rules A3 and A7)."""

from __future__ import annotations

from treadle.router.pins import Pins


def test_a_pin_lasts_while_it_is_used():  # A7
    pins = Pins(ttl_s=10.0, capacity=5)
    pins.put(1, "a", 0.0)
    for now in (9.0, 18.0):
        assert pins.use(1, now).replica == "a"
    assert pins.peek(1, 27.0).replica == "a"  # looking is no use
    assert pins.peek(1, 29.0) is None
    assert pins.use(1, 29.0) is None


def test_the_least_recently_used_goes_first():  # A3
    pins = Pins(ttl_s=10.0, capacity=2)
    pins.put(1, "a", 0.0)
    pins.put(2, "b", 1.0)
    pins.use(1, 2.0)
    pins.put(3, "c", 3.0)
    assert len(pins) == 2
    assert pins.peek(2, 3.0) is None
    assert pins.peek(1, 3.0) and pins.peek(3, 3.0)


def test_expired_entries_leave_the_map():  # A7
    pins = Pins(ttl_s=10.0, capacity=100)
    for key in range(50):
        pins.put(key, "a", 0.0)
    pins.put(99, "b", 20.0)
    assert len(pins) == 1
    assert pins.counts() == {"b": 1}
