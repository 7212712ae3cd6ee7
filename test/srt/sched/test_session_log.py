"""What is remembered of sessions: totals of ended requests, who is there now, and for how many."""

from __future__ import annotations

from test.srt.sched.conftest import MakeLoop
from treadle.srt.sched import session_log
from treadle.srt.snapshot import SessionView


def test_turns_of_a_session_add_up_and_the_last_to_speak_comes_first(make_loop: MakeLoop):
    loop = make_loop(windows=2)
    loop.add("a1", range(100, 140), session="a")
    loop.drain()
    loop.add("b1", range(200, 220), session="b")
    loop.drain()
    loop.add("a2", range(100, 160), session="a")
    loop.drain()
    newest, other = loop.scheduler.sessions(loop.now, 10)
    outputs = [loop.done[rid].usage for rid in ("a1", "a2")]
    assert (newest.session, other.session) == ("a", "b")
    assert (newest.turns, newest.prompt_tokens) == (2, 100)
    assert newest.cached_tokens == sum(u.cached_tokens for u in outputs) > 0
    assert newest.replayed_tokens == sum(u.replayed_tokens for u in outputs) > 0
    assert newest.output_tokens == sum(u.completion_tokens for u in outputs)
    assert newest.context_tokens == 60 + outputs[1].completion_tokens
    assert newest.approx == 1  # B34
    assert (newest.running, newest.waiting) == (0, 0)
    assert newest.silent_s < other.silent_s


def test_live_requests_are_counted_where_they_are(make_loop: MakeLoop):
    loop = make_loop(max_running=1)
    for rid in ("a1", "a2", "a3"):
        loop.add(rid, range(20), session="a")
    loop.add("none", range(30))
    loop.plan()
    (view,) = loop.scheduler.sessions(loop.now, 10)
    assert (view.running, view.waiting, view.turns) == (1, 2, 0)
    loop.drain()


def test_kept_windows_are_shown(make_loop: MakeLoop):
    loop = make_loop(windows=1, warm=2)
    loop.add("a", range(40), session="a")
    loop.drain()
    (view,) = loop.scheduler.sessions(loop.now, 10)
    assert 40 <= view.window_tokens <= view.context_tokens


def test_choices_of_a_prompt_are_one_turn(make_loop: MakeLoop):  # B37
    loop = make_loop()
    first = loop.add("a", range(20), session="a")
    loop.add("b", range(20), session="a", fork_of=first.rid)
    loop.drain()
    (view,) = loop.scheduler.sessions(loop.now, 10)
    assert (view.turns, view.prompt_tokens) == (1, 20)
    assert view.output_tokens == sum(x.usage.completion_tokens for x in loop.done.values())


def test_a_request_that_never_ran_has_cost_nothing(make_loop: MakeLoop):
    loop = make_loop(max_running=1)
    loop.add("a", range(20))
    loop.add("b", range(20, 50), session="b")
    loop.plan()
    loop.scheduler.abort_all("user", loop.now)
    loop.drain()
    (view,) = loop.scheduler.sessions(loop.now, 10)
    assert (view.turns, view.prompt_tokens, view.output_tokens) == (0, 0, 0)


def test_scopes_keep_equal_names_apart(make_loop: MakeLoop):
    loop = make_loop()
    for owner in ("x", "y"):
        loop.add(owner, range(20), session="a", namespace=(("owner", owner),))
        loop.drain()
    assert [v.turns for v in loop.scheduler.sessions(loop.now, 10)] == [1, 1]


def test_only_those_that_spoke_last_are_kept(make_loop: MakeLoop, monkeypatch):
    monkeypatch.setattr(session_log, "MOST", 2)
    loop = make_loop()
    for name in ("a", "b", "a", "c"):
        loop.add(f"{name}{loop.now}", range(20), session=name)
        loop.drain()

    def names(limit: int) -> list[str]:
        views: tuple[SessionView, ...] = loop.scheduler.sessions(loop.now, limit)
        return [view.session for view in views]

    assert names(10) == ["c", "a"]
    assert names(1) == ["c"]
