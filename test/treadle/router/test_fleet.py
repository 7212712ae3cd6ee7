"""Rendezvous order and the load bound (rules A5 and A6)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.router.fleet import Fleet

_rng = random.Random(1)
KEYS = [_rng.getrandbits(64) for _ in range(2000)]
names_of = st.lists(st.integers(0, 99).map(lambda i: f"http://r{i}"), min_size=2, max_size=8,
                    unique=True)  # fmt: skip


def fleet_of(names, **options) -> Any:
    fleet = Fleet(**options)
    for name in names:
        fleet.add(name)
    return fleet


@settings(max_examples=20)
@given(names_of)
def test_adding_and_removing_moves_only_the_keys_of_that_replica(names):  # A5, A18
    fleet = fleet_of(names[:-1])
    before = {key: fleet.first(key) for key in KEYS[:300]}
    fleet.add(names[-1])
    after = {key: fleet.first(key) for key in before}
    assert all(after[key] in (before[key], names[-1]) for key in before)
    fleet.remove(names[-1])
    assert {key: fleet.first(key) for key in before} == before


@settings(max_examples=20)
@given(names_of, st.randoms(use_true_random=False))
def test_order_does_not_depend_on_how_the_fleet_was_built(names, rng):  # A5
    fleet = fleet_of(names)
    shuffled = list(names)
    rng.shuffle(shuffled)
    other = fleet_of([*shuffled, "gone"])
    other.remove("gone")
    assert [fleet.place(key) for key in KEYS[:100]] == [other.place(key) for key in KEYS[:100]]


def test_keys_spread_evenly_and_by_weight():  # A5
    fleet = fleet_of(["a", "b", "c"])
    fleet.set_weight("c", 0.25)
    counts = dict.fromkeys("abc", 0)
    for key in KEYS:
        counts[fleet.first(key)] += 1
    for name, share in (("a", 4 / 9), ("b", 4 / 9), ("c", 1 / 9)):
        assert counts[name] / len(KEYS) == pytest.approx(share, abs=0.03)


def test_a_change_of_weight_moves_keys_of_that_replica_only():  # A16
    fleet = fleet_of(["a", "b", "c"])
    before = {key: fleet.first(key) for key in KEYS}
    fleet.set_weight("c", 0.5)
    moved = [key for key in KEYS if fleet.first(key) != before[key]]
    assert moved
    assert all(before[key] == "c" for key in moved)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.integers(0, 2**64 - 1))
def test_a_place_is_within_the_bound(loads, key):  # A6
    fleet = fleet_of([f"r{i}" for i in range(len(loads))], gap=100.0)
    for i, load in enumerate(loads):
        fleet.set_load(f"r{i}", load, 1)
    mean = sum(loads) / len(loads)
    assert fleet.load(fleet.place(key)) <= max(1.25 * mean, mean + 100) + 1e-6


@settings(max_examples=10)
@given(st.randoms(use_true_random=False), st.integers(2, 10))
def test_placing_with_the_bound_keeps_loads_balanced(rng, count):  # A6
    fleet = fleet_of([f"r{i}" for i in range(count)], gap=1000.0)
    for _ in range(400):
        name = fleet.place(rng.getrandbits(64))
        fleet.set_load(name, fleet.load(name) + rng.uniform(1, 500), 1)
    loads = [fleet.load(name) for name in fleet.names]
    mean = sum(loads) / count
    assert max(loads) <= max(1.25 * mean, mean + 1000) + 500


def test_an_idle_fleet_keeps_to_the_order():  # A6
    fleet = fleet_of(["a", "b", "c"], gap=1000.0)
    first = fleet.first(7)
    fleet.set_load(first, 900.0, 1)  # the only one with any load, but within the gap
    assert fleet.place(7) == first
    fleet.set_load(first, 1600.0, 1)
    assert fleet.place(7) != first


def test_without_room_anywhere_the_least_loaded_is_taken():  # A6
    fleet = fleet_of(["a", "b", "c"], gap=10.0)
    for name, load in (("a", 1000.0), ("b", 900.0), ("c", 0.0)):
        fleet.set_load(name, load, 1)
    assert {fleet.place(key, {"c"}) for key in KEYS[:50]} == {"b"}


def test_only_eligible_replicas_count():
    fleet = fleet_of(["a", "b"])
    fleet.set_load("a", 5000.0, 2)
    fleet.set_weight("a", 0.0)
    assert fleet.mean_load == 0.0
    assert not fleet.is_eligible("a") and not fleet.is_eligible("nobody")
    assert {fleet.place(key) for key in KEYS[:20]} == {"b"}
    assert fleet.place(1, {"b"}) is None
    fleet.set_weight("a", 0.5)
    assert fleet.mean_load == 2500.0
