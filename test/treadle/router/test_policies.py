"""The policies by name (rules A10, A12)."""

from __future__ import annotations

import random

import pytest

from test.treadle.router.test_fleet import fleet_of
from treadle.router.affinity import Ask, Decision
from treadle.router.policies import ASSIGNMENTS, KEYLESS_NAMES, NAMES, PolicyRules, make_policy

AGENT = b"You are an agent with many tools." * 40


def policy_of(name: str, **rules):
    return make_policy(PolicyRules(name=name, **rules), random.Random(1))


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_chooses_only_eligible_untried_replicas(name: str):
    policy, fleet = policy_of(name), fleet_of("abcd")
    fleet.set_weight("a", 0.0)
    for key in range(60):
        ask = Ask(key=key if key % 2 else None, text=bytes([key]) * 700, failed=frozenset("b"))
        assert policy.choose(ask, fleet, float(key)).replica in "cd"
    assert policy.choose(Ask(key=1, failed=frozenset("bcd")), fleet, 61.0) is None
    assert policy.num_entries >= 0


@pytest.mark.parametrize("name", KEYLESS_NAMES)
def test_session_leaves_keyless_requests_to_the_policy_that_was_named(name: str):
    policy, fleet = policy_of("session", keyless=name), fleet_of("ab")
    assert policy.choose(Ask(text=AGENT), fleet, 0.0).decision is Decision.KEYLESS


def test_round_robin_takes_turns():
    policy, fleet = policy_of("round_robin"), fleet_of("abc")
    assert [policy.choose(Ask(), fleet, 0.0).replica for _ in range(6)] == list("abcabc")


def test_random_reaches_all():
    policy, fleet = policy_of("random"), fleet_of("abc")
    assert {policy.choose(Ask(key=1), fleet, 0.0).replica for _ in range(50)} == set("abc")


def test_consistent_hashing_looks_at_the_key_alone():
    policy, fleet = policy_of("consistent_hashing"), fleet_of("abc")
    home = policy.choose(Ask(key=5), fleet, 0.0)
    assert home.decision is Decision.PINNED
    fleet.set_load(home.replica, 1e9, 1)
    assert policy.choose(Ask(key=5), fleet, 0.0) == home
    moved = policy.choose(Ask(key=5, failed=frozenset({home.replica})), fleet, 0.0)
    assert moved.decision is Decision.FAILOVER
    texts = {policy.choose(Ask(text=AGENT), fleet, 0.0).replica for _ in range(9)}
    assert len(texts) == 1
    assert len({policy.choose(Ask(), fleet, 0.0).replica for _ in range(50)}) == 3


def test_manual_stays_until_the_replica_is_gone():
    for assignment in ASSIGNMENTS:
        policy, fleet = policy_of("manual", assignment=assignment), fleet_of("abc")
        home = policy.choose(Ask(key=5), fleet, 0.0)
        assert home.decision is Decision.NEW
        fleet.set_load(home.replica, 1e9, 99)
        assert policy.choose(Ask(key=5), fleet, 1.0).replica == home.replica
        fleet.set_weight(home.replica, 0.0)
        moved = policy.choose(Ask(key=5), fleet, 2.0)
        assert moved.decision is Decision.FAILOVER
        fleet.set_weight(home.replica, 1.0)
        assert policy.choose(Ask(key=5), fleet, 3.0).replica == moved.replica


def test_manual_assigns_by_load_or_by_group():
    fleet = fleet_of("abc")
    fleet.set_load("a", 5.0, 1)
    fleet.set_load("b", 1.0, 1)
    fleet.set_load("c", 3.0, 1)
    by_load = policy_of("manual", assignment="min_load")
    assert {by_load.choose(Ask(key=k), fleet, 0.0).replica for k in range(5)} == {"b"}
    by_group = policy_of("manual", assignment="min_group")
    chosen = [by_group.choose(Ask(key=k), fleet, 0.0).replica for k in range(6)]
    assert sorted(chosen) == list("aabbcc")


class TestCacheAware:
    def setup_method(self) -> None:
        self.policy = policy_of("cache_aware", balance_abs=10)
        self.fleet = fleet_of("abc", gap=1000.0)

    def ask(self, text: bytes):
        return self.policy.choose(Ask(text=text), self.fleet, 0.0)

    def test_a_prompt_goes_where_its_head_was_sent(self):
        first = self.ask(AGENT)
        assert first.decision is Decision.KEYLESS
        again = self.ask(AGENT + b"and more" * 50)
        assert (again.replica, again.decision) == (first.replica, Decision.CACHE)
        assert again.known_bytes > 1000

    def test_a_short_match_does_not_decide(self):
        first = self.ask(AGENT)
        assert self.ask(AGENT[:300] + b"x" * 3000).decision is Decision.KEYLESS
        assert self.ask(AGENT).replica == first.replica

    def test_a_match_never_overrides_the_bound(self):  # A10, A6
        first = self.ask(AGENT)
        self.fleet.set_load(first.replica, 1e6, 1)
        choice = self.ask(AGENT)
        assert choice.replica != first.replica

    def test_an_unbalanced_fleet_fills_the_shortest_queue(self):
        first = self.ask(AGENT)
        for name in "abc":
            self.fleet.set_load(name, 10.0, 20 if name == first.replica else 5)
        others = [name for name in "abc" if name != first.replica]
        self.fleet.set_load(others[0], 10.0, 3)
        assert self.ask(AGENT).replica == others[0]

    def test_the_bound_map_is_counted(self):
        self.ask(AGENT)
        assert self.policy.num_entries == len(AGENT) // 256
