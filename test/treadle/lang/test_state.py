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
