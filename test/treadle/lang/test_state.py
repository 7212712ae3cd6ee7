"""States: reading waits for what is read, errors are values, streams and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import META, FakeBackend
from treadle.client.background import background
from treadle.lang.backend import Answer


def held(backend: FakeBackend, word: str) -> asyncio.Event:
    """The reply to prompts that end in `word` waits for the event."""
    gate = asyncio.Event()

    async def reply(request: Any) -> str:
        if request.prompt.text.endswith(word):
            await gate.wait()
        return "42"

    backend.reply = reply
    return gate


def test_reading_a_variable_does_not_wait_for_what_comes_after_it(backend: FakeBackend):
    gate = held(backend, "b")

    @tr.function
    def two(s):
        s += "a" + tr.gen("x")
        s += "b" + tr.gen("y")
        assert s["x"] == "42"
        background().call(gate.set)
        return s["y"]

    assert two.run().ret_value == "42"


def test_an_error_is_kept_and_raised_where_it_is_read(backend: FakeBackend):
    backend.reply = lambda r: tr.Refused(400, "bad") if r.prompt.text.endswith("b") else "42"
    state = tr.function(lambda s: s.append(["a", tr.gen("x")]).append(["b", tr.gen("y")])).run()
    assert state["x"] == "42"
    assert isinstance(state.error(), tr.Refused)
    with pytest.raises(tr.Refused, match="HTTP 400: bad"):
        state["y"]


def test_what_follows_an_error_fails_with_it_and_is_not_asked(backend: FakeBackend):
    backend.reply = lambda request: tr.Refused(400, "bad")

    @tr.function
    def goes_on(s):
        s += "a" + tr.gen("x")
        s += "b" + tr.gen("y")
        with s.fork(2) as forks:
            forks += tr.gen("z")
        return s["z"]

    state = goes_on.run()
    assert isinstance(state.error(), tr.Refused)
    assert len(backend.asked) == 1
    with pytest.raises(tr.Refused):
        state["y"]


def test_a_name_that_nothing_sets_is_a_key_error(backend: FakeBackend):
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run()
    assert "x" in state and "y" not in state
    with pytest.raises(KeyError, match="no variable 'y' is set here; set are: x"):
        state["y"]


def test_a_name_may_be_set_again(backend: FakeBackend):
    replies = iter(["one", "two"])
    backend.reply = lambda request: next(replies)

    @tr.function
    def again(s):
        s += "a" + tr.gen("x")
        first = s["x"]
        s += tr.gen("x")
        return first, s["x"]

    assert again.run().ret_value == ("one", "two")


def test_text_comes_in_pieces(backend: FakeBackend):
    backend.reply = lambda request: Answer("abc", meta=dict(META))
    state = tr.function(lambda s: s.append("1" + tr.gen("x") + "2" + tr.gen("y"))).run(stream=True)
    assert list(state.text_iter("x")) == ["a", "b", "c"]
    assert "".join(state.text_iter()) == "1abc2abc" == state.text()


async def test_text_comes_in_pieces_to_coroutines_too(backend: FakeBackend):
    state = tr.function(lambda s: s.append("1" + tr.gen("x"))).run(stream=True)
    pairs = [pair async for pair in state.text_async_iter("x", return_meta_data=True)]
    assert [text for text, _ in pairs] == ["4", "2", ""]
    assert pairs[-1][1]["cached_tokens"] == 4


def test_a_stream_ends_in_the_error_of_its_branch(backend: FakeBackend):
    backend.reply = lambda request: tr.BrokenAnswer("cut")
    state = tr.function(lambda s: s.append("1" + tr.gen("x"))).run(stream=True)
    with pytest.raises(tr.BrokenAnswer):
        list(state.text_iter("x"))


def test_events_of_a_run_that_does_not_stream_are_refused(backend: FakeBackend):
    state = tr.function(lambda s: s.append("1" + tr.gen("x"))).run()
    with pytest.raises(tr.ProgramError, match="stream=True"):
        list(state.text_iter())


def test_cancel_ends_what_runs_and_fails_what_waits(backend: FakeBackend):
    held(backend, "b")
    state = tr.function(lambda s: s.append("b" + tr.gen("x")).append(tr.gen("y"))).run(stream=True)
    while not backend.asked:
        pass
    state.cancel()
    for name in ("x", "y"):
        with pytest.raises(tr.Cancelled):
            state[name]
    assert isinstance(state.error(), tr.Cancelled) and backend.cancelled == 1


@pytest.mark.parametrize("read", [tr.State.__getitem__, lambda s, name: asyncio.run(s.read(name))])
def test_a_name_that_a_cancelled_program_did_not_reach_is_no_key_error(
    read: Any, backend: FakeBackend
):
    held(backend, "b")

    @tr.function
    def reads_first(s):
        s += "b" + tr.gen("x")
        s += s["x"] + tr.gen("y")

    state = reads_first.run(stream=True)
    while not backend.asked:
        pass
    state.cancel()
    with pytest.raises(tr.Cancelled):
        read(state, "y")


def test_every_branch_is_a_session_and_knows_its_parent(backend: FakeBackend):
    @tr.function
    def family(s):
        s += "a" + tr.gen("x")
        with s.fork(2) as forks:
            forks += tr.gen("y")
        return [fork.session_id for fork in forks]

    with family.run(session_id="root") as state:
        children = state.ret_value
    sessions = [session for session, _ in backend.asked]
    assert [(s.id, s.parent) for s in sessions] == [
        ("root", None), (children[0], "root"), (children[1], "root"),
    ]  # fmt: skip
    assert {s.id for s in backend.closed} == {"root", *children}
    assert state["x"] == "42"


async def give_up(waiting: Coroutine[Any, Any, Any]) -> None:
    """Cancelled while it waits, as by `asyncio.wait_for`."""
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_gives_up_waiting_leaves_the_state_whole(backend: FakeBackend):
    gate = held(backend, "b")

    @tr.function
    async def impatient(s):
        s += "b" + tr.gen("x")
        await give_up(s.read("x"))
        await give_up(s.settle())
        background().call(gate.set)
        await s.settle()
        return await s.read("x")

    state = await impatient.arun()
    assert state.error() is None and state.ret_value == "42"


async def test_keep_warm_touches_the_prefix_while_nothing_is_asked(backend: FakeBackend):
    @tr.function
    async def waits(s):
        s += "a" + tr.gen("x")
        s.keep_warm(0.01)
        await s.read("x")
        while len(backend.commits) < 2:
            await asyncio.sleep(0.01)

    await waits.arun()
    assert {prompt.text for prompt in backend.commits} == {"a42"}


def test_set_var_needs_no_server():
    state = tr.function(lambda s: s.set_var("x", [1])).run(backend=FakeBackend())
    assert state["x"] == [1] and state.get_meta_info("x") is None


def test_a_program_may_watch_a_variable_of_its_own(backend: FakeBackend):
    """Its branch goes on, so only the variable's end can end the pieces."""

    @tr.function
    def watches(s):
        s += "1" + tr.gen("x") + "2" + tr.gen("y")
        return list(s.text_iter("x"))

    state = watches.run(stream=True)
    state.sync()
    assert list(state.text_iter("y")) == ["4", "2"]
    list(state.events())
    assert state.ret_value == ["4", "2"]


async def test_a_coroutine_may_watch_a_variable_of_its_own(backend: FakeBackend):
    @tr.function
    async def watches(s):
        s += "1" + tr.gen("x")
        return [piece async for piece in s.text_async_iter("x")]

    state = await watches.arun(stream=True)
    assert [event async for event in state.aevents()]
    assert state.task is not None
    await state.task
    assert state.ret_value == ["4", "2"]


@pytest.mark.parametrize("watch", [lambda s: s.text_iter(), lambda s: s.events()])
def test_a_program_that_waits_for_its_own_end_is_told(watch: Any, backend: FakeBackend):
    state = tr.function(lambda s: list(watch(s.append("1" + tr.gen("x"))))).run(stream=True)
    list(state.events())
    with pytest.raises(tr.ProgramError, match="its own end"):
        list(state.text_iter())


def test_watching_a_name_that_nothing_sets_is_a_key_error(backend: FakeBackend):
    state = tr.function(lambda s: s.append("1" + tr.gen("x"))).run(stream=True)
    with pytest.raises(KeyError, match="no variable 'y'"):
        list(state.text_iter("y"))


def test_who_watches_a_branch_sees_its_end_when_it_is_cancelled(backend: FakeBackend):
    backend.reply = lambda request: asyncio.Event().wait()

    @tr.function
    def cancels(s):
        s += "a"
        forks = s.fork(2)
        forks += tr.gen("x")
        forks.cancel()
        return [list(fork.events()) for fork in forks]

    state = cancels.run(stream=True)
    list(state.events())
    state.sync()
    assert [len(seen) for seen in state.ret_value] == [0, 0]


def test_branches_end_with_a_program_that_fails(backend: FakeBackend):
    copies: list[tr.State] = []

    @tr.function
    def fails(s):
        s += "a"
        copies.append(s.copy())
        raise ZeroDivisionError

    list(fails.run(stream=True).events())
    assert list(copies[0].events()) == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_warmth_needs_a_time(seconds: float, backend: FakeBackend):
    state = tr.function(lambda s: s.keep_warm(seconds)).run()
    assert isinstance(state.error(), tr.ProgramError) and "more than 0" in str(state.error())


def test_a_copy_is_kept_warm_no_longer_than_the_program(backend: FakeBackend):
    @tr.function
    def copies(s):
        s += "a"
        other = s.copy()
        other.keep_warm(0.001)
        other.sync()
        return other

    copy = copies.run().ret_value
    background().wait(asyncio.sleep(0.01))
    seen = len(backend.commits)
    background().wait(asyncio.sleep(0.02))
    assert len(backend.commits) == seen and copy.error() is None


def test_a_name_that_one_expression_sets_twice_is_refused(backend: FakeBackend):
    state = tr.function(lambda s: s.append(["a", tr.gen("x"), "b", tr.gen("x")])).run()
    assert isinstance(state.error(), tr.ProgramError) and "'x' twice" in str(state.error())
