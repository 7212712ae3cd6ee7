"""The router's code in a simulation: retries of refused connections."""

from __future__ import annotations

from benchmark.fleet.router import Router

from treadle.router.affinity import Ask, Decision
from treadle.router.outcomes import RetryBudget
from treadle.router.policies import PolicyRules

NAMES = [f"http://r{number}:1" for number in range(4)]
KEY = 12345


def router_of(policy: str = "session") -> Router:
    return Router(NAMES, PolicyRules(name=policy), seed=0)


def test_a_dead_replica_is_left_and_in_the_end_not_asked():
    router = router_of()
    home = router.place(Ask(KEY), set(), 0.0)
    assert home is not None and home.decision is Decision.NEW
    moved = router.place(Ask(KEY), {home.replica}, 1.0)
    assert moved is not None and moved.replica != home.replica
    assert moved.decision is Decision.FAILOVER
    for second in range(1, 4):
        router.probe_failed(home.replica, float(second))
    assert not router.fleet.is_eligible(NAMES[home.replica])
    assert not router.lost


def test_two_attempts_at_most():
    router = router_of("round_robin")
    assert router.place(Ask(KEY), set(range(4)), 0.0) is None
    again = Ask(KEY, failed=frozenset(NAMES[:1]))
    assert router.place(again, {1, 2, 3}, 0.0) is None
    assert router.lost == 2


def test_the_retry_budget_holds():
    router = router_of("round_robin")
    router.place(Ask(KEY), set(), 0.0)
    count = 0
    while router.may_retry():
        count += 1
    assert count == RetryBudget().burst
    placed = [router.place(Ask(KEY), {0}, 0.0) for _ in range(4)]
    assert placed.count(None) == 1 == router.lost  # where the turn was the dead one's


def test_reports_correct_the_load():
    router = router_of()
    placed = router.place(Ask(KEY, prompt_bytes=4000), set(), 0.0)
    assert placed is not None
    name = NAMES[placed.replica]
    assert router.fleet.load(name) == 1000 + 256
    router.report(placed.replica, running=1, waiting=0, uncached=300.0)
    assert router.fleet.load(name) == 300 + 256
    router.ended(placed)
    assert router.fleet.load(name) < 300
