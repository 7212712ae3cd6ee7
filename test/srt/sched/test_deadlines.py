"""Time limits of requests: in the queue, while running, and what they say."""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel

from .conftest import Loop, MakeLoop

MODEL = FakeModel(stop_rate=0.0)


def expire(loop: Loop, now: float) -> float | None:
    loop.now = now
    wake_at = loop.scheduler.expire(now)
    loop.collect()
    return wake_at


def test_a_request_that_waits_too_long_was_not_admitted(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=1, overlap=False)
    loop.add("a", range(20), max_new_tokens=50, queue_timeout_s=5.0)
    loop.add("b", range(30), queue_timeout_s=50.0)
    loop.step()
    assert expire(loop, 49.0) == 50.0  # "a" was admitted in time
    assert not loop.done
    assert expire(loop, 50.0) is None
    end = loop.done["b"].finish
    assert (end.reason, end.status, end.was_admitted) == ("abort", 503, False)
    assert "still waited in the queue after its limit of 50 seconds" in end.message
    loop.drain()
    assert len(loop.text["a"]) == 50


@pytest.mark.parametrize("overlap", [True, False])
def test_a_running_request_ends_at_its_limit_and_frees_what_it_holds(
    make_loop: MakeLoop, overlap: bool
):
    loop = make_loop(model=MODEL, overlap=overlap)
    loop.add("a", range(20), max_new_tokens=200, timeout_s=60.0)
    for _ in range(5):
        loop.step()
    expire(loop, 60.0)
    loop.drain(limit=5)
    end = loop.done["a"].finish
    assert (end.status, end.was_admitted) == (503, True)
    assert "was not done after its limit of 60 seconds" in end.message
    assert 0 < len(loop.text["a"]) < 20
    loop.cache.check()
    assert loop.counters()["aborts{reason=timeout,phase=decode}"] == 1


def test_a_later_request_of_the_same_rid_has_its_own_time(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, overlap=False)
    loop.add("a", range(20), max_new_tokens=1, timeout_s=10.0)
    loop.drain()
    del loop.done["a"], loop.text["a"]
    loop.now = 5.0
    loop.add("a", range(20), max_new_tokens=50)
    loop.step()
    assert expire(loop, 11.0) is None
    loop.drain()
    assert loop.done["a"].finish.reason == "length"
