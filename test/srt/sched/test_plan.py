"""Span ends and the cursors that adding rows moves."""

from __future__ import annotations

from array import array

import pytest

from treadle.srt.cache.replay import ReplayShape
from treadle.srt.messages import FROM_DEVICE, PageUpdate, RequestId, SamplingParams
from treadle.srt.sched.plan import StepBuilder, StepRecord, span_end
from treadle.srt.sched.request import Request


@pytest.mark.parametrize(
    ("start", "known", "hit", "budget", "end"),
    [
        (0, 30, 0, 30, 30),  # all that is left
        (0, 30, 0, 29, 28),  # down to a page boundary (T37)
        (28, 30, 0, 1, None),
        (30, 50, 0, 9, 36),  # absolute positions count, not lengths
        (0, 30, 0, 3, None),
        (17, 50, 32, 19, 36),  # replay and one page (B15)
        (17, 50, 32, 18, None),
        (17, 34, 32, 17, 34),  # replay and the last two rows
        (17, 34, 32, 16, None),
    ],
)
def test_end_of_a_span(start: int, known: int, hit: int, budget: int, end: int | None):
    assert span_end(start, known, hit, budget, 4, may_cut_replay=False) == end


def test_a_replay_that_may_be_cut_ends_at_a_page_boundary():
    assert span_end(17, 50, 32, 8, 4, may_cut_replay=True) == 24  # B16
    assert span_end(17, 50, 32, 2, 4, may_cut_replay=True) is None


def make_request(tokens: int, max_known: int) -> Request:
    ids = array("i", range(tokens))
    params = SamplingParams(max_new_tokens=max_known - tokens, seed=1)
    return Request(
        rid=RequestId("a"),
        tokens=ids,
        prompt_len=tokens,
        max_known=max_known,
        sampling=params,
        stop_ids=frozenset(),
        namespace=(),
        shape=ReplayShape("bounded", 0, 1),
        top_logprobs=None,
        priority=0,
        logprob_ids=array("i"),
        to_score=tokens,
        arrival=0,
        arrived=0.0,
        known=tokens,
        slot=3,
    )


def test_the_sampled_row_makes_one_more_token_known():
    request = make_request(10, 12)
    builder = StepBuilder(StepRecord(5, 0.0), 64)
    builder.add_span(request, 8)
    assert (request.next, request.known, request.last_step) == (8, 10, 5)
    builder = StepBuilder(StepRecord(6, 0.0), 64)
    builder.add_span(request, 10)
    assert (request.next, request.known) == (10, 11)
    builder = StepBuilder(StepRecord(7, 0.0), 64)
    builder.add_singles([request])
    assert (request.next, request.known) == (11, 11)  # the twelfth is never run
    assert list(builder.build([]).token_ids) == [FROM_DEVICE]


def test_budget_counts_all_rows():
    request = make_request(10, 12)
    builder = StepBuilder(StepRecord(0, 0.0), 16)
    builder.add_span(request, 10)
    assert (builder.num_rows, builder.budget) == (10, 6)


def test_spans_carry_the_write_floor():
    request = make_request(10, 12)
    request.next, request.hit = 2, 8
    builder = StepBuilder(StepRecord(0, 0.0), 16)
    builder.add_span(request, 10)
    plan = builder.build([PageUpdate(1, 4, array("i", [9]))])
    assert list(plan.spans()) == [(3, 2, 8, 10, 1)]
    assert list(plan.token_ids) == list(range(2, 10))
    assert plan.pages[0].first == 4
