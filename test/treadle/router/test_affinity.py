"""Where a session goes (rules A5 to A9, A12, A18; test 10 of the prefix-cache document)."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.treadle.router.test_fleet import fleet_of
from treadle.router.affinity import AffinityRules, Ask, Decision, SessionAffinity
from treadle.router.fleet import Fleet
from treadle.router.policies import PowerOfTwo

NAMES = ("a", "b", "c")
KEY = 77


def affinity_of(seed: int = 0, **rules) -> SessionAffinity:
    return SessionAffinity(AffinityRules(**rules), PowerOfTwo(random.Random(seed)))


class Bench:
    def __init__(self, names=NAMES, gap: float = 100.0) -> None:
        self.fleet: Any = fleet_of(names, gap=gap)
        self.affinity = affinity_of()
        self.now = 0.0

    def ask(self, key: int | None = KEY, **fields):
        return self.affinity.choose(Ask(key=key, **fields), self.fleet, self.now)

    def load(self, name: str, tokens: float) -> None:
        self.fleet.set_load(name, tokens, 1)


def test_a_new_key_goes_by_hash_and_then_stays():  # A5, A7, A12
    bench = Bench()
    first = bench.ask()
    assert first.decision is Decision.NEW
    assert first.replica == bench.fleet.first(KEY)
    assert [bench.ask().decision for _ in range(3)] == [Decision.PINNED] * 3
    bench.now = 601.0  # idle for too long: new again
    assert bench.ask().decision is Decision.NEW


def test_a_pinned_key_stays_when_replicas_are_added():  # A7, A18
    bench = Bench()
    homes = {key: bench.ask(key).replica for key in range(200)}
    for name in ("d", "e"):
        bench.fleet.add(name)
    assert {key: bench.ask(key).replica for key in homes} == homes


def test_only_keys_of_a_lost_replica_move_and_none_jumps_back():  # A16, A18, test 9
    bench = Bench()
    homes = {key: bench.ask(key).replica for key in range(200)}
    bench.fleet.set_weight("a", 0.0)
    moved = {key: bench.ask(key) for key in homes}
    for key, choice in moved.items():
        lost = homes[key] == "a"
        assert choice.decision is (Decision.FAILOVER if lost else Decision.PINNED)
        assert choice.replica == homes[key] or lost
    bench.fleet.set_weight("a", 1.0)
    again = {key: bench.ask(key) for key in homes}
    assert all(again[key].replica == moved[key].replica for key in homes)
    assert {choice.decision for choice in again.values()} == {Decision.PINNED}


def test_a_failed_try_moves_the_key():  # A12, 4.5
    bench = Bench()
    home = bench.ask().replica
    choice = bench.ask(failed=frozenset({home}))
    assert choice.decision is Decision.FAILOVER and choice.replica != home
    assert bench.ask().replica == choice.replica


def test_a_replica_that_does_not_admit_is_left_for_once():  # 4.5, A9
    bench = Bench()
    home = bench.ask().replica
    choice = bench.ask(busy=frozenset({home}))
    assert choice.decision is Decision.SPILL and choice.replica != home
    assert bench.ask().replica == home
    assert bench.ask(busy=frozenset(NAMES)) is None


def test_spill_needs_the_bound_passed_and_a_gap_below():  # A9
    bench = Bench()
    home = bench.ask().replica
    far, near = (name for name in NAMES if name != home)
    for name, load in ((far, 5000.0), (near, 5000.0), (home, 5090.0)):
        bench.load(name, load)
    assert bench.ask().decision is Decision.PINNED  # lower, but within the bound
    bench.load(home, 9000.0)
    assert bench.ask().decision is Decision.SPILL


def test_a_spill_must_save_more_than_running_the_prompt_again():  # A9
    bench = Bench(gap=100.0)
    home = bench.ask(prompt_bytes=40_000).replica  # of 4 bytes: 10,000 tokens
    bench.load(home, 39_000.0)
    assert bench.ask(prompt_bytes=44_000).decision is Decision.PINNED
    bench.load(home, 45_000.0)
    assert bench.ask(prompt_bytes=44_000).decision is Decision.SPILL


def test_a_pinned_key_stays_when_the_others_are_hardly_lower():  # A9
    bench = Bench(gap=100.0)
    home = bench.ask().replica
    far, near = (name for name in NAMES if name != home)
    for name, load in ((far, 0.0), (near, 250.0), (home, 300.0)):
        bench.load(name, load)
    assert bench.fleet.is_over(home)
    assert bench.ask(busy=frozenset({near})).replica == far
    assert bench.ask(busy=frozenset({far})).decision is Decision.PINNED  # not the gap below


def test_the_first_spill_is_for_once_and_the_second_running_moves_the_key():  # A9
    bench = Bench()
    home = bench.ask().replica
    bench.load(home, 1000.0)
    first = bench.ask()
    assert first.decision is Decision.SPILL
    bench.load(home, 0.0)
    assert bench.ask().replica == home  # calm between: the count begins anew
    bench.load(home, 1000.0)
    assert bench.ask().replica == first.replica
    assert bench.ask().decision is Decision.SPILL
    bench.load(home, 0.0)
    choice = bench.ask()
    assert choice.decision is Decision.PINNED and choice.replica == first.replica


def test_nothing_is_eligible():
    bench = Bench()
    home = bench.ask().replica
    for name in NAMES:
        bench.fleet.set_weight(name, 0.0)
    assert bench.ask() is None and bench.ask(5) is None and bench.ask(None) is None
    for name in NAMES:
        bench.fleet.set_weight(name, 1.0)
    assert bench.ask().replica == home  # nobody else has its prefix


def test_requests_without_a_key_go_to_the_less_loaded_of_two():  # A10
    bench = Bench(names=("a", "b"))
    bench.load("a", 10.0)
    choices = [bench.ask(None) for _ in range(10)]
    assert {choice.replica for choice in choices} == {"b"}
    assert {choice.decision for choice in choices} == {Decision.KEYLESS}


def test_a_child_starts_where_its_parent_is_unless_that_is_over_its_bound():
    bench = Bench()
    home = bench.ask(1, prompt_bytes=900).replica
    child = bench.ask(2, parent=1, prompt_bytes=1000)
    assert (child.replica, child.decision, child.known_bytes) == (home, Decision.CACHE, 900)
    assert bench.ask(2, parent=1).decision is Decision.PINNED
    bench.load(home, 1000.0)
    other = bench.ask(3, parent=1)
    assert other.replica != home and other.decision is Decision.NEW
    bench.load(home, 0.0)
    bench.fleet.set_weight(home, 0.0)
    assert bench.ask(4, parent=1).replica != home


def test_a_child_of_an_unknown_parent_begins_where_the_parent_would():
    bench, other_router = Bench(), Bench()
    assert bench.ask(9, parent=1).replica == other_router.ask(1).replica


def test_what_a_replica_has_seen_grows_with_the_session():  # A8
    bench = Bench()
    known = [bench.ask(prompt_bytes=size).known_bytes for size in (100, 250, 400, 50)]
    assert known == [0, 100, 250, 50]


@settings(max_examples=20)
@given(st.integers(2, 8), st.randoms(use_true_random=False))
def test_routers_without_shared_state_agree_on_new_keys(count, rng):
    names = [f"http://10.0.0.{i}:30000" for i in range(count)]
    routers = []
    for seed in range(3):
        rng.shuffle(names)
        routers.append((affinity_of(seed), fleet_of(names)))
    for _ in range(50):
        ask = Ask(key=rng.getrandbits(64))
        chosen = {affinity.choose(ask, fleet, 0.0).replica for affinity, fleet in routers}
        assert len(chosen) == 1


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc"), st.floats(0, 5000),
                          st.sampled_from([0.0, 0.5, 1.0])), max_size=80))  # fmt: skip
def test_a_choice_is_always_eligible_and_never_one_that_was_tried(steps):
    bench = Bench()
    for i, (key, name, load, weight) in enumerate(steps):
        bench.now += 7.0
        bench.load(name, load)
        bench.fleet.set_weight(name, weight)
        tried = frozenset("abc"[: i % 3])
        choice = bench.ask(key or None, failed=tried)
        usable = set(bench.fleet.eligible()) - tried
        assert (choice is None and not usable) or choice.replica in usable


def queue_times(with_hot_key: bool, affinity_on: bool = True) -> list[float]:
    """Seconds that requests of ordinary sessions waited: four replicas of one token a
    millisecond, ordinary load 40 % of the fleet, and one key whose load is four times that.
    """
    rng = random.Random(3)
    bench = Bench(names=tuple("abcd"), gap=200.0)
    ends: list[tuple[float, str, float]] = []
    free_at = dict.fromkeys("abcd", 0.0)
    loads = dict.fromkeys("abcd", 0.0)
    waits: list[float] = []
    arrivals = [(rng.uniform(0, 60), rng.randrange(1, 60)) for _ in range(240)]
    if with_hot_key:
        arrivals += [(rng.uniform(0, 60), 0) for _ in range(960)]
    cost = 100.0  # tokens, that is 0.1 s; all together 0.5 of the fleet's time
    for at, key in sorted(arrivals):
        while ends and ends[0][0] <= at:
            _, name, tokens = heapq.heappop(ends)
            loads[name] -= tokens
            bench.load(name, loads[name])
        bench.now = at
        choice = bench.ask(1000 + key, prompt_bytes=400)
        name = choice.replica if affinity_on else bench.fleet.first(1000 + key)
        begin = max(at, free_at[name])
        free_at[name] = begin + cost / 1000
        loads[name] += cost
        bench.load(name, loads[name])
        heapq.heappush(ends, (free_at[name], name, cost))
        if key:
            waits.append(begin - at)
    return waits


def test_a_hot_session_does_not_starve_the_others():  # test 10
    calm, hot = queue_times(False), queue_times(True)
    hashed = queue_times(True, affinity_on=False)

    def mean(waits):
        return sum(waits) / len(waits)

    # Its 0.4 of the fleet's time leave every queue no longer than that load must make it.
    assert mean(hot) <= 2.0 * max(mean(calm), 0.1)
    assert max(hot) <= 2.0 * max(*calm, 0.4)
    assert mean(hashed) > 10 * mean(hot)  # what plain hashing does


def test_a_choice_is_a_value():
    assert replace(Ask(key=1), failed=frozenset("a"), busy=frozenset("b")).without == {"a", "b"}
    with pytest.raises(AttributeError):
        Ask().key = 3  # type: ignore[misc]


def test_the_fleet_is_not_touched_by_choices():  # A18
    fleet = Fleet()
    for name in NAMES:
        fleet.add(name)
    affinity_of().choose(Ask(key=1), fleet, 0.0)
    assert [fleet.load(name) for name in NAMES] == [0.0] * 3
