"""Windows of ended requests, from the finish of one request to the first step of the next.

Two window layers of window 8, pages of 4, rings of 16 rows. The fake worker checks what is in them.
"""

from __future__ import annotations

from test.fakes import FakeModel

from .conftest import Loop, MakeLoop

MODEL = FakeModel(stop_rate=0.0)
PROMPT = list(range(30))


def turn(loop: Loop, rid: str, prompt: list[int], **options: object) -> list[int]:
    """Prompt and output of a request run to its end."""
    loop.add(rid, prompt, **options)
    loop.drain()
    return [*prompt, *loop.text[rid]]


def test_next_turn_runs_its_new_rows_only(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=1, max_running=1)  # B5
    text = turn(loop, "a", PROMPT)
    first = len(loop.plans)
    turn(loop, "b", [*text, 1, 2, 3], session="s")
    reset = loop.plans[first].resets[0]
    assert (reset.source, reset.hit, reset.floor) == (1, 36, 29)
    assert loop.spans(first)[0] == (reset.slot, 36, 36, 41, 1)
    usage = loop.done["b"].usage
    assert (usage.cached_tokens, usage.replayed_tokens) == (36, 0)
    assert loop.counters()["window_donations"] == 2


def test_row_of_an_ended_request_in_flight_costs_nothing(make_loop: MakeLoop):
    """T33: with a step ahead, the ring goes on for a row after the request has ended."""
    for length in range(26, 34):  # the end is at every offset in a page
        loop = make_loop(model=FakeModel(stop_rate=0.2), windows=2, warm=1, max_running=1)
        text = turn(loop, "a", list(range(length)), max_new_tokens=90)
        turn(loop, "b", [*text, 1, 2, 3])
        usage = loop.done["b"].usage
        assert usage.replayed_tokens == 0
        assert usage.cached_tokens == (len(text) - 1) // 4 * 4


def test_slot_of_a_window_waits_for_the_step_in_flight(make_loop: MakeLoop):
    """T31: a request that comes at once replays, and is not made to wait."""
    loop = make_loop(model=FakeModel(stop_rate=1.0), windows=2, warm=1, max_running=2)
    loop.add("a", PROMPT)
    loop.plan()
    loop.plan()
    loop.commit()
    assert loop.done["a"].finish.reason == "stop" and loop.scheduler.in_flight
    loop.add("b", [*PROMPT, 1, 2, 3])
    loop.plan()
    assert loop.plans[-1].resets[0].source == 0
    loop.drain()


def test_preempted_request_takes_its_own_window_back(make_loop: MakeLoop):
    """B35: resume is a hit, and a hit may find a window. The counters call it recomputed."""
    loop = make_loop(model=MODEL, windows=2, warm=1, overlap=False)
    loop.add("a", PROMPT, max_new_tokens=20)
    for _ in range(6):
        loop.step()
    loop.scheduler._preempt(loop.scheduler._running.requests[0])
    loop.plan()
    assert loop.plans[-1].resets[0].source == 1
    loop.drain()
    usage = loop.done["a"].usage
    assert (usage.cached_tokens, usage.replayed_tokens) == (0, 0)
    sampling = loop.add("b", PROMPT, max_new_tokens=20).sampling
    assert loop.text["a"] == MODEL.oracle(PROMPT, sampling, 256).token_ids


def test_warm_slots_are_free_places_of_the_queue(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=2, max_running=2, max_queued=1)
    for rid in "abcde":
        turn(loop, rid, [ord(rid), *PROMPT])
    assert loop.gauges()["window_slots{state=warm}"] == 4
    for rid in "vwxy":
        loop.add(rid, [ord(rid) % 50, *PROMPT])
    assert list(loop.done)[5:] == ["y"]
    assert "1 wait, limit 1" in loop.done["y"].finish.message
    loop.plan()
    assert loop.gauges()["running"] == 2
    loop.drain()


def test_rows_that_are_not_finite_leave_no_window_behind_them(make_loop: MakeLoop):
    """T13: the window ends before the bad row."""
    loop = make_loop(model=FakeModel(nan_rate=1.0), windows=2, warm=1)
    loop.add("a", PROMPT)
    loop.drain()
    assert loop.done["a"].finish.status == 500
    assert loop.gauges()["window_slots{state=warm}"] == 0


def test_flush_forgets_windows(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=1)  # S6, T25
    turn(loop, "a", PROMPT)
    assert loop.scheduler.flush()[0]
    assert loop.gauges()["window_slots{state=warm}"] == 0
    loop.cache.check()
