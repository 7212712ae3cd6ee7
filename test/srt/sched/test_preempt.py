"""Preemption and resume: victims, text, usage, progress. Rules are cited."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from test.fake_model import FakeModel
from treadle.srt.messages import FROM_DEVICE, RequestId
from treadle.srt.sched.preempt import (
    PROGRESS_TOKENS,
    choose_outranked,
    choose_victim,
    spare,
)
from treadle.srt.sched.request import Request

from .conftest import Loop, MakeLoop

MODEL = FakeModel(stop_rate=0.0)


def running(**fields: int) -> Request:
    base = {"priority": 0, "num_output": 5, "prompt_len": 10, "arrival": 0, "spared_until": 0}
    base |= fields
    base["len"] = base["prompt_len"] + base["num_output"]
    return SimpleNamespace(**base)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "victim",
    [
        {"priority": -1, "num_output": 99},
        {"num_output": 4},
        {"prompt_len": 11},
        {"arrival": 1},
    ],
)
def test_victims_are_of_low_priority_little_output_long_prompt_late(victim: dict[str, int]):
    chosen = running(**victim)  # T42
    assert choose_victim([running(), chosen, running()]) is chosen


def test_one_request_is_kept():
    assert choose_victim([running()]) is None  # T42


def test_resumed_requests_are_spared_until_they_progress():
    spared = running(num_output=0, spared_until=40)  # T46
    plain = running(num_output=30)
    assert choose_victim([spared, plain]) is plain
    progressed = running(num_output=30, spared_until=40)
    assert choose_victim([progressed, running(num_output=31)]) is progressed


def test_when_all_are_spared_the_usual_order_holds():
    least = running(num_output=1, spared_until=99)
    assert choose_victim([running(spared_until=99), least]) is least


def test_the_span_of_grace_is_bounded_by_what_is_left():
    near = SimpleNamespace(len=30, max_known=40)
    far = SimpleNamespace(len=30, max_known=4000)
    assert spare(near) == 40  # type: ignore[arg-type]
    assert spare(far) == 30 + PROGRESS_TOKENS  # type: ignore[arg-type]


def interrupt(loop: Loop, rid: str, step: int) -> None:
    """Run `step` steps, then preempt the request by hand when it runs and nothing is in flight."""
    for _ in range(step):
        loop.step()
    while loop.scheduler.in_flight:
        loop.commit()
    for request in list(loop.scheduler._running):
        if request.rid == rid:
            loop.scheduler._preempt(request)
    loop.cache.check()


@pytest.mark.parametrize("mode", ["bounded", "exact", "off"])
@pytest.mark.parametrize("windows", [0, 2])
@pytest.mark.parametrize("overlap", [True, False])
def test_preemption_at_each_step_changes_no_text(
    make_loop: MakeLoop, mode: str, windows: int, overlap: bool
):
    for step in range(1, 24):  # T43, T44; section 7, test 5
        loop = make_loop(model=MODEL, windows=windows, mode=mode, chunk_tokens=20, overlap=overlap)
        sent = loop.add("a", range(50), max_new_tokens=16, presence_penalty=0.5)
        loop.add("b", range(100, 120), max_new_tokens=16)
        interrupt(loop, "a", step)
        loop.drain()
        assert loop.text["a"] == MODEL.oracle(sent.prompt_ids, sent.sampling, 256).token_ids
        assert len(loop.text["b"]) == 16


def test_resume_tells_the_worker_what_exists(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, overlap=False)
    loop.add("a", range(50), max_new_tokens=16, presence_penalty=0.5, seed=None)
    interrupt(loop, "a", 6)
    loop.drain()
    first, second = (reset for plan in loop.plans for reset in plan.resets)
    assert (first.num_output, second.num_output) == (0, 6)
    assert second.prompt_len == 50
    assert list(second.history) == [*range(50), *loop.text["a"][:6]]
    assert first.sampling == second.sampling


def test_usage_is_that_of_the_first_admission(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, overlap=False)  # B35, B37
    loop.add("warm", range(50), max_new_tokens=0)
    loop.drain()
    loop.add("a", range(60), max_new_tokens=16)
    interrupt(loop, "a", 5)
    counters = loop.counters()
    loop.drain()
    usage = loop.done["a"].usage
    assert (usage.cached_tokens, usage.prompt_tokens, usage.completion_tokens) == (48, 60, 16)
    after = loop.counters()
    for name in ("prefix_hit_tokens", "prefix_query_tokens", "replay_rows", "fresh_rows"):
        assert counters[name] == after[name]
    assert after["recomputed_rows"] > 0
    assert after["preemptions"] == 1


def test_full_pages_survive_a_preemption(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, overlap=False)
    loop.add("a", range(50), max_new_tokens=16)
    interrupt(loop, "a", 8)
    loop.plan()
    (reset,) = loop.plans[-1].resets
    assert reset.hit == 56  # 50 prompt and 7 computed outputs
    assert loop.scheduler._requests[RequestId("a")].spared_until == 50 + 16  # T46


def test_pages_lacking_under_a_step_in_flight_wait_for_its_commit(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, num_pages=13, conservativeness=0.01)
    loop.add("a", range(20), max_new_tokens=30)
    loop.add("b", range(100, 116), max_new_tokens=30)
    while not loop.scheduler.can_plan or loop.plan() is not None:
        if not loop.scheduler.can_plan:
            loop.commit()
    assert loop.scheduler.in_flight == 1
    assert loop.counters()["preemptions"] == 0
    loop.commit()
    loop.plan()
    assert loop.counters()["preemptions"] == 1
    assert FROM_DEVICE not in loop.plans[-1].token_ids  # all ids are known by then
    loop.drain()
    assert len(loop.text["b"]) == 30


def test_requests_that_do_not_fit_together_all_finish(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, num_pages=30, max_running=6, conservativeness=0.01)  # T46
    for i in range(6):
        loop.add(str(i), range(100 * i, 100 * i + 8), max_new_tokens=80)
    loop.drain(limit=1500)
    assert all(len(loop.text[str(i)]) == 80 for i in range(6))
    counters = loop.counters()
    assert 0 < counters["preemptions"] < 40
    assert counters["recomputed_rows"] < 6 * 88  # no thrash: less than running all twice


def test_an_important_request_is_not_the_victim(make_loop: MakeLoop):
    loop = make_loop(
        model=MODEL, num_pages=13, conservativeness=0.01, overlap=False, priorities=True
    )
    loop.add("a", range(20), max_new_tokens=20)
    loop.add("b", range(100, 116), max_new_tokens=20, priority=1)  # T42
    while loop.counters()["preemptions"] == 0:
        loop.step()
    assert [request.rid for request in loop.scheduler._running] == ["b"]


def test_only_those_outranked_by_more_than_the_gap_make_place():
    low, near, even = running(priority=0), running(priority=3), running(priority=5)
    assert choose_outranked([even, near, low], 5, 1) is low  # T42
    assert choose_outranked([even, near], 5, 1) is near
    assert choose_outranked([even, near], 5, 2) is None
    assert choose_outranked([running(priority=9)], 5, 0) is None


@pytest.mark.parametrize("overlap", [True, False])
def test_an_important_request_takes_a_place_and_the_other_resumes(
    make_loop: MakeLoop, overlap: bool
):
    options = {"model": MODEL, "max_running": 2, "overlap": overlap, "priorities": True}
    loop = make_loop(preempt_gap=10, **options)
    first = loop.add("a", range(20), max_new_tokens=40)
    loop.add("b", range(100, 120), max_new_tokens=40, priority=1)
    for _ in range(6):
        loop.step()
    loop.add("c", range(200, 220), max_new_tokens=5, priority=11)
    while "c" not in loop.done:
        loop.step()
    assert not {"a", "b"} & set(loop.done)
    assert loop.counters()["preemptions"] == 1  # "b" is outranked by 10 only
    loop.drain()
    assert loop.text["a"] == MODEL.oracle(first.prompt_ids, first.sampling, 256).token_ids


def test_nobody_makes_place_when_a_commit_has_made_some(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=2, overlap=False, priorities=True, preempt_gap=0)
    loop.add("a", range(20), max_new_tokens=4)
    loop.add("b", range(100, 120), max_new_tokens=40)
    for _ in range(3):
        loop.step()
    loop.add("c", range(200, 220), max_new_tokens=5, priority=1)
    loop.step()  # "c" lacks a slot, and the last token of "a" is sampled
    assert "a" in loop.done
    loop.drain()
    assert loop.counters()["preemptions"] == 0


def test_an_important_request_takes_the_pages_that_it_needs(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, num_pages=30, overlap=False, priorities=True, preempt_gap=0)
    for i in range(3):
        loop.add(str(i), range(100 * i, 100 * i + 24), max_new_tokens=40)
    for _ in range(4):
        loop.step()
    loop.add("c", range(400, 470), max_new_tokens=10, priority=1)
    for _ in range(25):
        loop.step()
    assert "c" in loop.done
    loop.drain()
    assert all(len(loop.text[str(i)]) == 40 for i in range(3))


def test_priority_has_no_effect_when_the_server_does_not_honour_it(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=1, overlap=False, preempt_gap=0)
    loop.add("a", range(20), max_new_tokens=20)
    loop.step()
    for rid, priority in (("b", 0), ("c", 99)):
        loop.add(rid, range(30), max_new_tokens=4, priority=priority)
    loop.drain()
    assert list(loop.done) == ["a", "b", "c"]


def test_the_less_important_never_takes_a_place(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=1, overlap=False, priorities=True, preempt_gap=0)
    loop.add("a", range(20), max_new_tokens=20, priority=5)
    loop.step()
    loop.add("b", range(30), max_new_tokens=4, priority=5)
    loop.add("c", range(40), max_new_tokens=4, priority=4)
    loop.drain()
    assert list(loop.done) == ["a", "b", "c"]
    assert loop.counters()["preemptions"] == 0


def test_a_full_queue_gives_the_place_of_the_least_to_the_more_important(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=1, max_queued=1, overlap=False, priorities=True)
    loop.add("a", range(20), max_new_tokens=20)
    loop.step()
    loop.add("b", range(30), max_new_tokens=4)
    loop.add("c", range(40), max_new_tokens=4)
    loop.add("d", range(50), max_new_tokens=4, priority=1)
    refused = {rid: loop.done[rid].finish for rid in ("b", "c")}
    assert all("the queue is full" in end.message for end in refused.values())
    assert all(end.status == 503 and not end.was_admitted for end in refused.values())
    loop.drain()
    assert len(loop.text["d"]) == 4


def test_a_request_that_is_refused_takes_nobodys_place_in_the_queue(make_loop: MakeLoop):
    loop = make_loop(
        model=MODEL, windows=1, max_running=1, max_queued=1, overlap=False, priorities=True
    )
    loop.add("a", range(20), max_new_tokens=20)
    loop.step()
    loop.add("b", range(30), max_new_tokens=4)
    loop.add("c", range(40), priority=1, replay_slope=8)
    assert loop.done["c"].finish.status == 400
    loop.drain()
    assert len(loop.text["b"]) == 4


def test_a_request_that_has_outgrown_the_pool_does_not_make_way(make_loop: MakeLoop):
    """T45: it could never be admitted again; it ends when it needs the page that is not there."""
    loop = make_loop(model=MODEL, num_pages=11, priorities=True, preempt_gap=0, overlap=False)
    loop.add("a", range(36), max_new_tokens=40)
    loop.step()
    (request,) = loop.scheduler._running
    while request.len < 40:
        loop.step()
    loop.add("b", range(100, 120), priority=5)
    loop.drain()
    assert loop.done["a"].finish.status == 503
    assert loop.done["b"].finish.reason == "length"
