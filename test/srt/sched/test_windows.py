"""Windows of ended requests, from the finish of one request to the first step of the next.

Two window layers of window 8, pages of 4, rings of 16 rows. The fake worker checks what is in them.
"""

from __future__ import annotations

import pytest

from test.fake_model import FakeModel
from treadle.srt.messages import AbortRequest, RequestId, SamplingParams

from .conftest import STOP, Loop, MakeLoop

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


def fork(loop: Loop, count: int, prompt: list[int] = PROMPT, **options: object) -> None:
    """A request "0" and its forks "1", "2", .., each with a seed of its own."""
    for i in range(count):
        rest = options | ({"fork_of": RequestId("0")} if i else {})
        loop.add(str(i), prompt, seed=i, **rest)


def check_texts(loop: Loop, count: int, prompt: list[int] = PROMPT, length: int = 8) -> None:
    for i in range(count):
        sampling = SamplingParams(length, seed=i, stop_token_ids=(STOP,))
        assert loop.text[str(i)] == MODEL.oracle(prompt, sampling, 256).token_ids


@pytest.mark.parametrize("chunk_tokens", [64, 16], ids=["whole", "chunked"])
@pytest.mark.parametrize("mode", ["bounded", "exact"])
def test_forks_run_their_last_page_only(make_loop: MakeLoop, chunk_tokens: int, mode: str):
    """The prompt is run once; the parent's window is copied while it goes on."""
    loop = make_loop(model=MODEL, windows=2, warm=1, mode=mode, chunk_tokens=chunk_tokens)
    fork(loop, 4)
    loop.drain()
    check_texts(loop, 4)
    for i in range(1, 4):
        usage = loop.done[str(i)].usage
        assert (usage.cached_tokens, usage.replayed_tokens) == (28, 0)
    counters = loop.counters()
    assert (counters["fresh_rows"], counters["replay_rows"]) == (30 + 3 * 2, 0)
    assert (counters["prompt_tokens"], counters["prefix_query_tokens"]) == (30, 30)  # B37
    assert counters["window_copies"] == 3


@pytest.mark.parametrize("length", range(26, 34))
def test_forks_of_prompts_of_every_length_in_a_page(make_loop: MakeLoop, length: int):
    loop = make_loop(model=MODEL, windows=2, warm=1)
    fork(loop, 4, PROMPT[:1] * length)
    loop.drain()
    check_texts(loop, 4, PROMPT[:1] * length)
    assert loop.counters()["replay_rows"] == 0


def test_forks_of_an_aborted_parent_run_the_prompt_themselves(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=1, chunk_tokens=16)
    fork(loop, 3)
    loop.plan()
    loop.scheduler.abort(AbortRequest(RequestId("0"), "user"), loop.now)
    loop.drain()
    for i in (1, 2):
        assert len(loop.text[str(i)]) == 8


def test_forks_that_come_after_the_end_of_their_parent_are_ordinary(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=1, max_running=1)
    fork(loop, 3, max_new_tokens=2)
    loop.drain()
    check_texts(loop, 3, length=2)
    assert loop.counters()["window_takeovers"] + loop.counters()["window_copies"] == 2


def test_forks_of_a_preempted_parent_get_their_texts(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=1, chunk_tokens=16, overlap=False)
    fork(loop, 3)
    loop.step()
    loop.scheduler._preempt(loop.scheduler._running.requests[0])  # between two chunks
    loop.plan()
    assert len(loop.spans()) == 1
    loop.drain()
    check_texts(loop, 3)


def test_forks_in_mode_off_share_nothing_and_do_not_wait(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, windows=2, warm=1, mode="off")
    fork(loop, 2)
    loop.plan()
    assert len(loop.spans()) == 2
    loop.drain()
    check_texts(loop, 2)


def test_forks_on_a_model_without_windows_adopt_the_pages(make_loop: MakeLoop):
    loop = make_loop(model=MODEL, chunk_tokens=16)
    fork(loop, 3)
    loop.drain()
    check_texts(loop, 3)
    assert loop.counters()["fresh_rows"] == 30 + 2 * 2
