"""What is settled when a request arrives."""

from __future__ import annotations

import pytest

from test.grammars import EOS, InlineExecutor, make_store
from treadle.srt.grammar.compile import json_object
from treadle.srt.messages import RequestId
from treadle.srt.sched.request import RequestState

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


def test_request_with_a_grammar_is_held_and_workers_are_not_told_it(make_loop: MakeLoop):
    loop = make_loop(grammars=make_store(InlineExecutor()))
    loop.add("a", range(20), grammar=json_object(), stop_token_ids=(EOS,))
    request = loop.scheduler._requests[RequestId("a")]
    assert request.state is RequestState.HELD
    assert request.matching is not None
    assert request.sampling.grammar is None
