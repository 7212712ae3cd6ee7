"""Section 7, test 7: abort at every event of a scripted schedule; what an abort leaves behind."""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel
from treadle.srt.messages import AbortRequest, RequestId

from .conftest import Loop, MakeLoop

MODEL = FakeModel(stop_rate=0.0)


# One request "x" among others: queued, chunks launched and answered one by one, decode one step
# ahead, finished while a step ahead is in flight.
SCRIPT = ["add", *["plan", "commit"] * 4, "plan", *["plan", "commit"] * 9]


def run(loop: Loop, event: str) -> None:
    if event == "add":
        loop.add("x", range(100, 130), max_new_tokens=6)
        loop.add("y", range(100, 130), max_new_tokens=12)
        loop.add("z", range(200, 210), max_new_tokens=12)
    elif event == "plan":
        if loop.scheduler.can_plan:
            loop.plan()
    elif loop.scheduler.in_flight:
        loop.commit()


@pytest.mark.parametrize("reason", ["client", "user", "stop"])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("windows", [0, 2])
def test_abort_at_every_event_ends_once_and_leaks_nothing(
    make_loop: MakeLoop, reason: str, overlap: bool, windows: int
):
    states = set()
    for cut in range(1, len(SCRIPT) + 1):  # T34, T32, T5
        loop = make_loop(
            model=MODEL, chunk_tokens=12, max_running=2, overlap=overlap, windows=windows
        )
        for event in SCRIPT[:cut]:
            run(loop, event)
        was_done = "x" in loop.done
        states.add((loop.gauges()["parked_chunks"], loop.scheduler.in_flight, was_done))
        loop.scheduler.abort(AbortRequest(RequestId("x"), reason), loop.now)
        loop.scheduler.abort(AbortRequest(RequestId("x"), reason), loop.now)  # twice is once
        loop.collect()
        before = len(loop.text.get("x", []))
        loop.drain()
        assert set(loop.done) == {"x", "y", "z"}
        assert len(loop.text["x"]) == before  # T33: no token after the abort
        expected = "length" if was_done else "stop" if reason == "stop" else "abort"
        assert loop.done["x"].finish.reason == expected
        assert len(loop.text["y"]) == len(loop.text["z"]) == 12
        gauges = loop.gauges()
        assert gauges["pages{state=private}"] == gauges["pages{state=protected}"] == 0
        assert gauges["window_slots{state=free}"] == 2
    assert len(states) > 4  # the script does pass through different situations


def test_a_queued_request_is_answered_at_once(make_loop: MakeLoop):
    loop = make_loop(model=MODEL)
    loop.add("a", range(6))
    loop.scheduler.abort(AbortRequest(RequestId("a"), "client"), 3.0)
    loop.collect()
    assert loop.done["a"].finish.status == 499
    assert loop.done["a"].queue_s == 3.0
    assert loop.done["a"].usage.cached_tokens == 0
    assert not loop.scheduler.has_work


def test_a_request_with_rows_in_flight_is_answered_by_the_next_commit(make_loop: MakeLoop):
    loop = make_loop(model=MODEL)
    loop.add("a", range(6))
    loop.plan()
    loop.scheduler.abort(AbortRequest(RequestId("a"), "user"), 0.0)
    assert loop.scheduler.take_events() == ()
    assert loop.plan() is None  # nothing more is planned for it
    loop.commit()
    assert loop.done["a"].finish.reason == "abort"
    assert loop.text["a"] == []


def test_a_prompt_between_two_chunks_is_answered_at_once(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=12, overlap=False)
    loop.add("a", range(30))
    loop.step()
    loop.scheduler.abort(AbortRequest(RequestId("a"), "client"), 0.0)
    loop.collect()
    assert loop.done["a"].finish.reason == "abort"
    assert loop.gauges()["window_slots{state=taken}"] == 0
    assert loop.counters()["aborts{reason=client,phase=prompt}"] == 1


def test_pages_computed_before_an_abort_are_kept(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=12, overlap=False)  # T36
    loop.add("a", range(30))
    loop.step()
    loop.scheduler.abort(AbortRequest(RequestId("a"), "client"), 0.0)
    loop.collect()
    loop.add("b", range(30))
    loop.drain()
    assert loop.done["b"].usage.cached_tokens == 12


def test_all_are_aborted_and_each_is_answered(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, max_running=2)
    for rid in "abcd":
        loop.add(rid, [ord(rid)] * 6)
    loop.plan()
    loop.scheduler.abort_all("user", 1.0)
    loop.collect()
    assert set(loop.done) == {"c", "d"}
    loop.drain()
    assert set(loop.done) == set("abcd")
