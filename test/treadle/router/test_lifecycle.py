"""States of a replica, breaker, drain and ramp (rules A13, A14, A16, A17)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.router.lifecycle import Breaker, Life, LifeRules, Probe, State


def ready_life(*, is_first: bool = True, now: float = 0.0, **rules) -> Any:
    life = Life(LifeRules(**rules), is_first=is_first)
    assert life.weight(now) == 0.0
    life.probed(Probe.READY, now)
    return life


def fail(life: Life, now: float, times: int = 3) -> None:
    for _ in range(times):
        life.failed(now)


def test_three_failures_running_open_the_breaker():  # A14
    life = ready_life()
    fail(life, 1.0, 2)
    life.succeeded(1.0)
    fail(life, 2.0, 2)
    assert life.state is State.READY
    life.failed(2.0)
    assert life.state is State.SUSPECT and life.breaker is Breaker.OPEN
    assert life.weight(2.0) == 0.0


def test_failures_far_apart_are_not_running():  # A14
    life = ready_life(failure_window_s=120.0)
    for now in (0.0, 121.0, 242.0, 363.0):
        life.failed(now)
    assert life.state is State.READY


def test_a_success_after_the_back_off_half_opens():  # A14
    life = ready_life(back_off_s=4.0)
    fail(life, 100.0)
    life.probed(Probe.READY, 103.0)
    assert life.breaker is Breaker.OPEN  # too early
    life.probed(Probe.READY, 104.0)
    assert life.breaker is Breaker.HALF_OPEN and life.state is State.SUSPECT
    assert 0.0 < life.weight(104.0) < 0.2
    for _ in range(3):
        life.succeeded(105.0)
    assert life.state is State.READY and life.breaker is Breaker.CLOSED


def test_a_half_open_breaker_opens_at_once():  # A14
    life = ready_life()
    fail(life, 100.0)
    life.probed(Probe.READY, 102.0)
    life.failed(103.0)
    assert life.breaker is Breaker.OPEN


def test_probes_alone_close_it_where_there_is_no_traffic():
    life = ready_life()
    fail(life, 100.0)
    for now in (102.0, 103.0, 104.0, 105.0):
        life.probed(Probe.READY, now)
    assert life.state is State.READY


def test_a_replica_that_came_back_ramps_up():  # A16
    life = ready_life(ramp_s=30.0)
    assert life.weight(0.0) == 1.0  # of the first fleet: nobody is warmer
    fail(life, 100.0)
    for _ in range(4):
        life.probed(Probe.READY, 110.0)
    assert [life.weight(now) for now in (110.0, 125.0, 140.0, 200.0)] == [0.1, 0.5, 1.0, 1.0]


def test_a_ramp_of_no_time_is_none():  # A16
    life = Life(LifeRules(ramp_s=0.0), is_first=False)
    life.probed(Probe.READY, 5.0)
    assert life.weight(5.0) == 1.0


def test_an_added_replica_ramps_up():  # A16
    life = ready_life(is_first=False, now=50.0)
    assert life.weight(50.0) == 0.1 and life.weight(65.0) == 0.5


def test_one_that_fails_soon_after_it_came_back_waits_longer_each_time():  # A16
    life = ready_life(back_off_s=1.0, max_back_off_s=6.0, min_dwell_s=60.0)
    now, waits = 1000.0, []
    for _ in range(4):
        fail(life, now)
        began = now
        while life.breaker is Breaker.OPEN:
            now += 0.5
            life.probed(Probe.READY, now)
        waits.append(now - began)
        for _ in range(3):
            life.succeeded(now)
        now += 5.0
    assert waits == [1.0, 2.0, 4.0, 6.0]
    now += 61.0  # long enough to be trusted again
    fail(life, now)
    life.probed(Probe.READY, now + 1.0)
    assert life.breaker is Breaker.HALF_OPEN


def test_a_replica_that_says_it_is_not_ready_gets_no_requests():  # A13: SIGTERM at the replica
    life = ready_life()
    life.probed(Probe.NOT_READY, 5.0)
    assert life.state is State.DRAINING and life.weight(5.0) == 0.0
    assert life.drain_deadline == float("inf")  # it ends itself
    life.probed(Probe.FAILED, 6.0)
    assert life.state is State.STARTING
    life.probed(Probe.NOT_READY, 7.0)
    assert life.state is State.STARTING
    life.probed(Probe.READY, 8.0)
    assert life.state is State.READY and life.weight(8.0) == 0.1


def test_a_restart_under_suspicion_is_a_start():
    life = ready_life()
    fail(life, 1.0)
    life.probed(Probe.NOT_READY, 3.0)
    assert life.state is State.STARTING and life.breaker is Breaker.CLOSED


def test_a_drain_is_final():  # A13
    life = ready_life(drain_timeout_s=300.0)
    life.drain(10.0)
    assert life.state is State.DRAINING and life.weight(10.0) == 0.0
    assert life.drain_deadline == 310.0
    life.drain(20.0)
    assert life.drain_deadline == 310.0
    for result in Probe:
        life.probed(result, 30.0)
        assert life.state is State.DRAINING
    life.end()
    life.probed(Probe.READY, 40.0)
    assert life.state is State.GONE


def test_slow_probes_are_no_death_by_themselves():  # A17
    life = ready_life()
    for now in (10.0, 20.0):
        life.probed(Probe.FAILED, now)
    assert life.state is State.READY
    life.succeeded(25.0)  # a long prefill has ended
    life.probed(Probe.FAILED, 30.0)
    assert life.state is State.READY


def test_without_a_breaker_nothing_opens():
    life = ready_life(has_breaker=False)
    fail(life, 1.0, 50)
    assert life.state is State.READY


STEP = st.sampled_from(["ok", "bad", "ready", "not_ready", "failed", "drain"])


@settings(max_examples=100)
@given(st.lists(st.tuples(STEP, st.floats(0, 40)), max_size=40))
def test_weight_and_state_always_agree(steps):
    life, now, was_drained = Life(LifeRules(), is_first=False), 0.0, False
    for step, wait in steps:
        now += wait
        if step in ("ok", "bad"):
            (life.succeeded if step == "ok" else life.failed)(now)
        elif step == "drain":
            life.drain(now)
            was_drained = True
        else:
            life.probed(Probe(step), now)
        weight = life.weight(now)
        assert 0.0 <= weight <= 1.0
        assert (weight > 0) == (life.state is State.READY or life.breaker is Breaker.HALF_OPEN)
        assert (life.breaker is Breaker.CLOSED) == (life.state is not State.SUSPECT)
        assert not was_drained or life.state is State.DRAINING


@pytest.mark.parametrize("state", State)
def test_states_have_the_names_of_the_design(state: State):
    assert state.value in ("starting", "ready", "draining", "suspect", "gone")
