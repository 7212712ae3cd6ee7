"""Orders of admission on requests that are only looked at."""

from __future__ import annotations

from array import array
from random import Random
from types import SimpleNamespace

import pytest

from treadle.srt.sched.policy import POLICIES, PROBE_LIMIT, QueueView, in_order
from treadle.srt.sched.request import Request


def waiting(
    name: str, tokens: list[int], *, hit: int = 0, limit: int = 100, priority: int = 0, ns: str = ""
) -> Request:
    return SimpleNamespace(  # type: ignore[return-value]
        rid=name,
        tokens=array("i", tokens),
        len=len(tokens),
        max_known=limit,
        priority=priority,
        hit=hit,
        namespace=(("salt", ns),),
    )


def names(policy: str, requests: list[Request], seed: int = 0) -> str:
    view = QueueView(lambda request: request.hit, Random(seed))
    before = list(requests)
    order = in_order(policy, requests, view)
    assert requests == before  # a policy changes nothing
    assert sorted(map(id, order)) == sorted(map(id, requests))
    return "".join(request.rid for request in order)


def test_fcfs_is_the_order_given():
    assert names("fcfs", [waiting("a", [1]), waiting("b", [1], hit=9)]) == "ab"


def test_lpm_prefers_the_longest_hit_and_is_stable():
    requests = [waiting("a", [1]), waiting("b", [1], hit=8), waiting("c", [1], hit=8)]
    assert names("lpm", requests) == "bca"


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight"])
def test_at_most_so_many_are_probed(policy: str):
    probed: list[str] = []

    def probe(request: Request) -> int:
        probed.append(request.rid)
        return 0

    requests = [waiting(str(i), [i]) for i in range(PROBE_LIMIT + 30)]  # T12
    order = in_order(policy, requests, QueueView(probe, Random(0)))
    assert len(probed) == PROBE_LIMIT
    assert order[PROBE_LIMIT:] == requests[PROBE_LIMIT:]


def test_lof_prefers_the_most_output():
    requests = [waiting("a", [1], limit=5), waiting("b", [1] * 9, limit=20)]
    assert names("lof", requests) == "ba"


def test_random_is_seeded():
    requests = [waiting(name, [1]) for name in "abcdefgh"]
    assert names("random", requests, 1) == names("random", requests, 1)
    assert names("random", requests, 1) != names("random", requests, 2)


def test_dfs_weight_visits_heavy_branches_first_and_keeps_them_together():
    left, right = [1, 2, 3, 4], [1, 2, 9, 9]
    requests = [
        waiting("a", [*left, 5], hit=4),
        waiting("b", [*right, 5], hit=4),
        waiting("c", [7, 7], hit=0),
        waiting("d", [*right, 6, 6, 6, 1], hit=6),
        waiting("e", [*right, 6, 6, 6, 2], hit=6),
    ]
    order = names("dfs-weight", requests)
    assert set(order[:3]) == set("bde")
    assert "de" in order or "ed" in order
    assert order.index("a") == 3


def test_dfs_weight_keeps_namespaces_apart():
    requests = [
        waiting("a", [1, 2], hit=2, ns="x"),
        waiting("b", [1, 2], hit=2, ns="y"),
        waiting("c", [1, 2], hit=2, ns="x"),
    ]
    assert names("dfs-weight", requests) in ("acb", "cab")


@pytest.mark.parametrize("policy", POLICIES)
def test_more_important_requests_stay_in_front(policy: str):
    requests = [waiting("a", [1], priority=1), waiting("b", [1], hit=9, limit=999)]
    assert names(policy, requests) == "ab"
