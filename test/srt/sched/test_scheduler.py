"""Scheduler: rows of a step, one step ahead, finishing, refusals, events. Rules are cited."""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel
from treadle.srt.arrays import ids
from treadle.srt.errors import InvariantBroken
from treadle.srt.messages import FROM_DEVICE, AbortRequest, RequestId, StepResult

from .conftest import STOP, MakeLoop

ENDLESS = FakeModel(stop_rate=0.0)
EAGER = FakeModel(stop_rate=1.0)  # every token that may be a stop id is one


def test_prompt_rows_and_decode_rows_share_a_step(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, overlap=False)
    loop.add("a", range(6))
    loop.step()
    loop.add("b", range(50, 60))
    loop.plan()
    assert loop.spans() == [(1, 6, 6, 7, 1), (2, 0, 0, 10, 1)]


def test_chunks_end_at_page_boundaries_and_only_the_last_row_is_sampled(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, chunk_tokens=14, overlap=False)  # T37
    loop.add("a", range(30), max_new_tokens=1)
    loop.drain()
    rows = [(start, end, sample) for i in range(3) for _, start, _, end, sample in loop.spans(i)]
    assert rows == [(0, 12, 0), (12, 24, 0), (24, 30, 1)]


def test_a_prompt_without_budget_keeps_its_cursor(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, chunk_tokens=10, overlap=False)  # T38
    loop.add("a", range(14), max_new_tokens=4)
    loop.add("b", range(60, 74), max_new_tokens=4)
    loop.drain()
    ends = [span[3] for i in range(len(loop.plans)) for span in loop.spans(i) if span[0] == 2]
    assert ends[0] == 4  # four rows are left after the last six of "a"; not a row is skipped
    assert len(loop.text["b"]) == 4


def test_decode_rows_count_in_the_budget(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, chunk_tokens=8, page_size=4, overlap=False)
    loop.add("a", range(3), max_new_tokens=30)
    loop.step()
    loop.add("b", range(60, 80))
    loop.plan()
    assert loop.spans() == [(1, 3, 3, 4, 1), (2, 0, 0, 4, 0)]


@pytest.mark.parametrize("overlap", [True, False])
def test_ids_that_are_not_known_yet_come_from_the_device(make_loop: MakeLoop, overlap: bool):
    loop = make_loop(model=ENDLESS, overlap=overlap)
    loop.add("a", range(6))
    loop.drain()
    assert (FROM_DEVICE in loop.plans[1].token_ids) == overlap


@pytest.mark.parametrize("overlap", [True, False])
def test_at_most_one_step_ahead_of_the_last_commit(make_loop: MakeLoop, overlap: bool):
    loop = make_loop(model=ENDLESS, overlap=overlap)
    loop.add("a", range(6), max_new_tokens=30)
    planned = 0
    while loop.scheduler.can_plan:
        planned += loop.plan() is not None
    assert planned == loop.scheduler.in_flight == 1 + overlap
    assert loop.scheduler.plan(0.0) is None
    loop.commit()
    assert loop.scheduler.can_plan


def test_a_row_after_the_stop_id_is_computed_and_dropped(make_loop: MakeLoop):
    loop = make_loop(model=EAGER)  # T33
    loop.add("a", range(6))
    loop.plan()
    loop.plan()
    loop.commit()
    assert loop.text["a"] == [STOP]
    assert loop.done["a"].finish.matched == STOP
    assert loop.done["a"].usage.completion_tokens == 1
    assert loop.scheduler.in_flight == 1
    loop.commit()
    assert loop.text["a"] == [STOP]


def test_what_a_step_in_flight_may_write_is_reused_after_its_commit(make_loop: MakeLoop):
    loop = make_loop(model=EAGER, max_running=1)  # T31, S10
    loop.add("a", range(6))
    loop.plan()
    loop.plan()
    loop.add("b", range(50, 56))
    loop.commit()
    assert loop.gauges()["window_slots{state=quarantine}"] == 1
    assert loop.gauges()["pages{state=quarantine}"] > 0
    assert loop.plan() is None  # the only slot is not free
    loop.commit()
    assert loop.gauges()["pages{state=quarantine}"] == 0
    assert loop.plan() is not None


@pytest.mark.parametrize("overlap", [True, False])
def test_limits_known_beforehand_plan_no_row_too_many(make_loop: MakeLoop, overlap: bool):
    loop = make_loop(model=ENDLESS, overlap=overlap)
    loop.add("a", range(6), max_new_tokens=5)
    loop.drain()
    assert loop.worker.rows_run == 6 + 5 - 1
    assert loop.done["a"].finish.reason == "length"


@pytest.mark.parametrize("overlap", [True, False])
def test_no_new_tokens_means_prefill_only(make_loop: MakeLoop, overlap: bool):
    loop = make_loop(model=EAGER, overlap=overlap)
    loop.add("a", range(9), max_new_tokens=0)
    loop.drain()
    assert loop.done["a"].finish.reason == "length"
    assert (loop.text["a"], loop.worker.rows_run) == ([], 9)
    loop.add("b", range(9))
    loop.drain()
    assert loop.done["b"].usage.cached_tokens == 8


def test_stop_ids_do_not_end_a_request_before_its_least_length(make_loop: MakeLoop):
    loop = make_loop(model=EAGER)
    loop.add("a", range(6), min_new_tokens=3)
    loop.drain()
    assert len(loop.text["a"]) == 4
    assert loop.text["a"][-1] == STOP and STOP not in loop.text["a"][:-1]


def test_the_context_ends_a_request(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, context_len=20)
    loop.add("a", range(15), max_new_tokens=100)
    loop.drain()
    assert len(loop.text["a"]) == 5
    assert loop.done["a"].finish.reason == "length"


def test_logits_that_are_not_finite_end_the_request_and_are_not_published(make_loop: MakeLoop):
    loop = make_loop(model=FakeModel(nan_rate=1.0))  # T13
    loop.add("a", range(32))
    loop.drain()
    assert loop.done["a"].finish.status == 500
    assert loop.text["a"] == []
    assert loop.tree_pages() == set()


def test_logprobs_go_to_those_who_asked(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS)
    loop.add("a", range(6), top_logprobs=0, max_new_tokens=1)
    loop.add("b", range(50, 56), max_new_tokens=1)
    loop.drain()
    assert loop.done["a"].logprobs[0].logprob == -float(loop.text["a"][0])
    assert loop.done["b"].logprobs == ()


def test_a_seed_is_drawn_once_and_is_reproducible(make_loop: MakeLoop):
    seeds = []
    for _ in range(2):
        loop = make_loop(model=ENDLESS)
        loop.add("a", range(6), seed=None)
        loop.add("b", range(6), seed=None)
        loop.drain()
        seeds.append([reset.sampling.seed for plan in loop.plans for reset in plan.resets])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 2


def test_a_full_queue_refuses(make_loop: MakeLoop):
    """A burst that the free slots can take does not count as queued."""
    loop = make_loop(max_queued=2, max_running=3)
    for rid in "abcdef":
        loop.add(rid, range(6))
    assert list(loop.done) == ["f"]
    assert loop.done["f"].finish.status == 503
    assert "queue is full: 2 wait, limit 2" in loop.done["f"].finish.message


def test_a_rid_in_use_is_refused_and_the_first_goes_on(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS)
    loop.add("a", range(6))
    loop.scheduler.add(loop.add("b", range(9)), 0.0)
    (event,) = loop.scheduler.take_events()
    assert (event.rid, event.finish.status) == ("b", 400)
    loop.drain()
    assert len(loop.text["b"]) == 8


def test_a_bad_replay_mode_is_refused(make_loop: MakeLoop):
    loop = make_loop(windows=2)
    loop.add("a", range(6), replay_mode="sometimes")
    assert loop.done["a"].finish.status == 400
    assert not loop.scheduler.has_work


def test_the_last_running_request_that_cannot_grow_ends_with_an_error(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, num_pages=9)  # T45: 32 tokens
    loop.add("a", range(20), max_new_tokens=40)
    loop.drain()
    assert loop.done["a"].finish.status == 503
    assert "pool" in loop.done["a"].finish.message
    assert len(loop.text["a"]) == 32 - 20 + 1


def test_waiting_work_is_planned_in_the_call_that_ends_the_last_running(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, num_pages=9, overlap=False)
    loop.add("a", range(20), max_new_tokens=40)
    for _ in range(13):
        loop.step()
    loop.add("b", range(60, 80), max_new_tokens=3)
    assert loop.plan() is not None
    assert "a" in loop.done


def test_answers_out_of_order_are_a_bug(make_loop: MakeLoop):
    loop = make_loop()
    loop.add("a", range(6))
    loop.plan()
    with pytest.raises(InvariantBroken, match="out of order"):
        loop.scheduler.commit(StepResult(7, ids()), 0.0)


def test_flush_waits_for_no_request(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS)  # T25
    loop.add("a", range(12))
    assert loop.scheduler.flush() == (False, "not flushed: 0 requests run and 1 wait")
    loop.drain()
    assert loop.tree_pages()
    assert loop.scheduler.flush()[0]
    assert not loop.tree_pages()


def test_the_age_of_a_step_counts_from_when_workers_could_begin(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS)
    assert loop.scheduler.step_age_s(50.0) == 0.0
    loop.add("a", range(6))
    loop.scheduler.plan(10.0)
    loop.scheduler.plan(11.0)
    assert loop.scheduler.step_age_s(14.0) == 4.0
    loop.scheduler.commit(StepResult(0, ids() + type(ids())("i", [3])), 20.0)
    assert loop.scheduler.step_age_s(21.0) == 1.0


def test_queue_time_is_that_before_the_first_admission(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, max_running=1, overlap=False)
    loop.add("a", range(6), max_new_tokens=3)
    loop.add("b", range(50, 56), max_new_tokens=3)
    loop.drain()
    assert loop.done["a"].queue_s == 1.0
    assert loop.done["b"].queue_s == 4.0


def test_gauges_are_read_from_state(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS, max_running=2, chunk_tokens=12)
    for rid in "abc":
        loop.add(rid, range(30))
    loop.plan()
    gauges = loop.gauges()
    assert (gauges["running"], gauges["waiting"]) == (1, 2)
    assert (gauges["parked_chunks"], gauges["in_flight_steps"]) == (1, 1)
    assert gauges["uncached_prompt_tokens"] == 90
    loop.scheduler.abort_all("user", 0.0)
    loop.drain()
    gauges = loop.gauges()
    assert gauges["running"] == gauges["waiting"] == gauges["parked_chunks"] == 0
    assert gauges["uncached_prompt_tokens"] == 0


def test_an_unknown_rid_is_not_aborted_nor_is_one_that_it_begins(make_loop: MakeLoop):
    loop = make_loop(model=ENDLESS)  # T35
    loop.add("session-12", range(6))
    loop.scheduler.abort(AbortRequest(RequestId("session-1"), "user"), 0.0)
    loop.drain()
    assert loop.done["session-12"].finish.reason == "length"
