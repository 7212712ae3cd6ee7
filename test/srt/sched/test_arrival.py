"""What is settled when a request arrives."""

from __future__ import annotations

import pytest

from .conftest import MakeLoop


@pytest.mark.parametrize(("honoured", "priority"), [(True, 7), (False, 0)])
def test_priority_counts_only_where_it_is_honoured(
    make_loop: MakeLoop, honoured: bool, priority: int
):
    loop = make_loop(priorities=honoured)
    loop.add("a", range(20), priority=7)
    (request,) = loop.scheduler._waiting
    assert request.priority == priority


def test_requests_without_a_seed_get_one_each_and_keep_it(make_loop: MakeLoop):
    loop = make_loop()
    for rid in ("a", "b", "c"):
        loop.add(rid, range(20), seed=None)
    seeds = [request.sampling.seed for request in loop.scheduler._waiting]
    assert None not in seeds and len(set(seeds)) == 3
    assert [request.arrival for request in loop.scheduler._waiting] == [1, 2, 3]
