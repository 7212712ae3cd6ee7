"""Requests that have not ended, as values: those that run first, each kind up to a bound."""

from __future__ import annotations

from test.srt.sched.conftest import MakeLoop


def test_running_requests_come_before_waiting_ones(make_loop: MakeLoop):
    loop = make_loop(max_running=1, overlap=False)
    loop.add("a", range(20), session="s")
    for rid in ("b", "c", "d"):
        loop.add(rid, range(30, 55))
    loop.step()
    loop.step()
    loop.now += 5.0
    views = loop.scheduler.requests(loop.now, 2)
    assert [(v.rid, v.state) for v in views] == [
        ("a", "running"), ("b", "waiting"), ("c", "waiting"),
    ]  # fmt: skip
    assert (views[0].session, views[1].session) == ("s", None)
    assert (views[0].prompt_tokens, views[0].computed_tokens, views[0].output_tokens) == (20, 21, 2)
    assert views[0].age_s == loop.now
    loop.drain()
    assert loop.scheduler.requests(loop.now, 2) == ()


def test_a_hit_and_its_replay_are_shown(make_loop: MakeLoop):
    loop = make_loop(windows=1, overlap=False)
    loop.add("a", range(40))
    loop.drain()
    loop.add("b", range(44))
    loop.step()
    (view,) = loop.scheduler.requests(loop.now, 10)
    usage = (view.cached_tokens, view.replayed_tokens, view.approx)
    loop.drain()
    done = loop.done["b"].usage
    assert usage == (done.cached_tokens, done.replayed_tokens, done.approx_generation)
    assert view.replayed_tokens > 0
