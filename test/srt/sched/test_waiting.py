"""WaitingQueue: places, and the two bounds on being overtaken."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

from test.fake_model import FakeModel
from treadle.srt.sched.policy import QueueView
from treadle.srt.sched.request import Request
from treadle.srt.sched.waiting import PATIENCE, WaitingQueue

from .conftest import MakeLoop

VIEW = QueueView(lambda request: 0, Random(0))


def request(arrival: int, priority: int = 0) -> Request:
    fields = {"arrival": arrival, "priority": priority, "overtaken": 0, "len": 1, "max_known": 9}
    return SimpleNamespace(**fields)  # type: ignore[return-value]


def arrivals(queue: WaitingQueue) -> list[int]:
    return [entry.arrival for entry in queue]


def test_a_preempted_request_comes_back_to_its_place():
    queue = WaitingQueue("fcfs")
    for arrival in (1, 2, 3):
        queue.push(request(arrival))
    queue.push(request(0))
    assert arrivals(queue) == [0, 1, 2, 3]


def test_priority_comes_before_arrival():
    queue = WaitingQueue("fcfs")
    for arrival, priority in ((0, 0), (1, 1), (2, 1), (3, 0)):
        queue.push(request(arrival, priority))
    assert arrivals(queue) == [1, 2, 0, 3]


def test_the_request_that_waits_for_budget_is_first_once():
    queue = WaitingQueue("fcfs")  # B15
    entries = [request(arrival) for arrival in range(3)]
    for entry in entries:
        queue.push(entry)
    queue.put_first(entries[2])
    assert queue.order(VIEW)[0] is entries[2]
    queue.admitted(entries[2])
    assert queue.order(VIEW) == entries[:2]


def test_the_oldest_is_first_after_enough_others_were_admitted():
    queue = WaitingQueue("lof")
    oldest = request(0)
    oldest.max_known = 2
    queue.push(oldest)
    for arrival in range(1, PATIENCE + 2):
        queue.push(request(arrival))
    for _ in range(PATIENCE):
        first = queue.order(VIEW)[0]
        assert first is not oldest
        queue.admitted(first)
    assert queue.order(VIEW)[0] is oldest


def test_no_policy_starves_a_request(make_loop: MakeLoop):
    model = FakeModel(stop_rate=0.0)
    for policy in ("lpm", "lof", "random", "dfs-weight"):
        loop = make_loop(model=model, policy=policy, max_running=1, overlap=False)
        loop.add("warm", range(40), max_new_tokens=0)
        loop.drain()
        loop.add("patient", [99], max_new_tokens=1)
        for i in range(3 * PATIENCE):
            if "patient" in loop.done:
                break
            loop.add(f"{i}", [*range(40), i], max_new_tokens=3)
            loop.add(f"{i}+", [*range(40), i], max_new_tokens=3)
            for _ in range(3):
                loop.step()
        assert "patient" in loop.done, policy
