"""A replica's steps: what they take, and what the cache makes of them."""

from __future__ import annotations

import math
from array import array

import pytest
from benchmark.fleet.costs import Costs
from benchmark.fleet.replica import Job, Replica, Shape

from treadle.srt.cache.manager import CacheFacts
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.model_config import LayerKind

COSTS = Costs(0.5, 0.01, 0.125)


def shape_of(num_pages: int = 200, per_token: float = 1.0, max_running: int = 8) -> Shape:
    facts = CacheFacts(num_pages, max_running + 1, 4, True, "lru")
    kinds = (LayerKind.GLOBAL, LayerKind.WINDOW, LayerKind.WINDOW)
    rule = ReplayRule(kinds, 8, ReplayShape("bounded", 0, 1), 4)
    return Shape(facts, rule, 64, per_token, COSTS)


def job(prompt: int, output: int, sent_at: float = 0.0, first: int = 0) -> Job:
    return Job(array("i", range(first, first + prompt + output)), prompt, 0, 0, sent_at)


def finish(replica: Replica) -> list[tuple[float, Job]]:
    """(when, job) of each that ends."""
    ended = []
    while not math.isinf(replica.ends_at):
        now = replica.ends_at
        ended += [(now, done) for done in replica.end_step()[1]]
    return ended


def test_a_prompt_takes_its_chunks_and_an_output_its_tokens():
    replica = Replica(shape_of())
    replica.arrive(job(100, 5), 10.0)
    ((end, done),) = finish(replica)
    assert done.first_at == pytest.approx(10.0 + 2 * 0.5 + 100 * 0.01)
    assert end == pytest.approx(done.first_at + 4 * (0.5 + 0.125))
    assert replica.total_rows == 100


def test_a_token_of_a_scaled_trace_costs_what_it_stands_for():
    replica = Replica(shape_of(per_token=64.0))
    replica.arrive(job(64, 2), 0.0)
    ((end, done),) = finish(replica)
    assert done.first_at == pytest.approx(0.5 + 64 * 64 * 0.01)
    assert end == pytest.approx(done.first_at + (2 * 64 - 1) * (0.5 + 0.125))


def test_a_later_turn_runs_what_is_new_and_one_window():
    replica = Replica(shape_of())
    replica.arrive(job(100, 8), 0.0)
    finish(replica)
    again = job(120, 8)
    replica.arrive(again, 100.0)
    finish(replica)
    assert again.hit == 104  # whole pages of the 107 rows that were run
    assert again.replayed == 8
    assert replica.total_rows == 100 + 16 + 8


def test_who_arrives_while_others_decode_waits_for_one_token_at_most():
    replica = Replica(shape_of())
    replica.arrive(job(10, 100), 0.0)
    replica.end_step()
    began = 0.6
    assert replica.ends_at == pytest.approx(began + 99 * 0.625)
    late = job(20, 2, sent_at=3.0, first=1000)
    replica.arrive(late, 3.0)
    assert replica.ends_at == pytest.approx(began + 4 * 0.625)
    ended = finish(replica)
    assert late.first_at == pytest.approx(began + 4 * 0.625 + 0.5 + 0.2 + 0.125)
    assert len(ended) == 2
    assert ended[-1][0] == pytest.approx(late.first_at + 0.5 + 0.25 + 93 * 0.625)


def test_requests_wait_for_slots_and_pages_and_all_is_given_back():
    replica = Replica(shape_of(num_pages=41, max_running=2))
    jobs = [job(60, 4, first=1000 * i) for i in range(6)]
    for one in jobs:
        assert replica.arrive(one, 0.0)
    assert (replica.num_requests, replica.num_running) == (6, 1)  # the others wait for its step
    assert replica.uncached_tokens == 6 * 60
    replica.end_step()
    assert (replica.num_requests, replica.num_running) == (6, 2)
    ended = [done for _, done in finish(replica)]
    assert set(ended) == set(jobs)
    assert not replica.num_requests and not replica.cache.leases
    replica.cache.check()


def test_what_can_never_fit_is_refused():
    assert not Replica(shape_of(num_pages=10)).arrive(job(60, 4), 0.0)
