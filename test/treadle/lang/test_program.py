"""Programs: where their functions run, what belongs to them and what to the run."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend


@tr.function
def plain(s, word, times=1):
    s += word * times + tr.gen("x")
    return s["x"], threading.current_thread().name


@tr.function
async def coroutine(s, word):
    s += word + tr.gen("x")
    return await s.read("x"), asyncio.get_running_loop()


def test_options_are_told_apart_from_arguments(backend: FakeBackend):
    other = FakeBackend(lambda request: "43")
    state = plain.run("a", times=2, temperature=0, max_new_tokens=3, stop=("\n",), backend=other)
    assert state.ret_value[0] == "43" and other.prompts == ["aa"]
    given = other.asked[0][1].sampling.given()
    assert given == {"temperature": 0, "max_new_tokens": 3, "stop": ["\n"]}


def test_a_parameter_goes_before_an_option_of_its_name(backend: FakeBackend):
    state = tr.function(lambda s, n: s.append("a" * n + tr.gen("x"))).run(n=3, seed=7)
    assert backend.prompts == ["aaa"] and state["x"] == "42"
    assert backend.asked[0][1].sampling.seed == 7


def test_arguments_may_be_bound(backend: FakeBackend):
    plain.bind(times=3).run("a")
    assert backend.prompts == ["aaa"]


def test_a_program_may_be_a_part_of_another(backend: FakeBackend):
    @tr.function
    def outer(s):
        s += "begin "
        plain(s, "a")
        return plain("b")["x"]  # a run of its own

    assert outer.run().ret_value == "42"
    assert backend.prompts == ["begin a", "b"]


def test_a_plain_program_runs_in_the_thread_of_its_caller(backend: FakeBackend):
    assert plain.run("a").ret_value[1] == threading.current_thread().name


async def test_a_coroutine_runs_on_the_loop_of_its_caller(backend: FakeBackend):
    here = asyncio.get_running_loop()
    assert (await coroutine.arun("a")).ret_value == ("42", here)
    state = await plain.arun("a")
    assert state.ret_value[0] == "42" and state.ret_value[1] != threading.current_thread().name


def test_what_a_function_returns_is_waited_for(backend: FakeBackend):
    """A run that streams goes on when its caller has seen all that it watches."""
    goes_on = threading.Event()

    @tr.function
    def lingers(s):
        s += "a" + tr.gen("x")
        goes_on.wait()
        return s.ret_value, "end"

    with ThreadPoolExecutor(1) as pool:
        state = lingers.run(stream=True)
        assert "".join(state.text_iter("x")) == "42"
        returned = pool.submit(lambda: state.sync().ret_value)
        with pytest.raises(TimeoutError):
            returned.result(timeout=0.05)
        goes_on.set()
        assert returned.result() == (None, "end")


async def test_a_loop_is_not_blocked_for_what_its_function_returns(backend: FakeBackend):
    state = await coroutine.arun("a", stream=True)
    with pytest.raises(tr.ProgramError, match="await s.task"):
        _ = state.ret_value
    assert state.task is not None
    await state.task
    assert state.ret_value[0] == "42"


async def test_a_run_that_was_cancelled_before_it_began_returns_nothing(backend: FakeBackend):
    state = await coroutine.arun("a", stream=True)
    state.cancel()
    assert state.ret_value is None


def test_a_coroutine_may_be_run_without_a_loop(backend: FakeBackend):
    assert coroutine.run("a").ret_value[0] == "42"


async def test_a_run_that_has_ended_is_read_without_waiting(backend: FakeBackend):
    state = await coroutine.arun("a")
    assert state.error() is None and state.text() == "a42" and state["x"] == "42"
    assert state.messages() == [] and len(state.trace().entries) == 1


async def test_reading_that_would_block_the_loop_is_refused(backend: FakeBackend):
    @tr.function
    async def blocks(s):
        s += "a" + tr.gen("x")
        return s["x"]

    backend.reply = lambda request: asyncio.Event().wait()
    state = await blocks.arun()
    assert "await s.read('x')" in str(state.error())
    assert "await s.read('x')" in str(blocks.run().error())


async def test_cancelling_the_caller_cancels_the_run(backend: FakeBackend):
    began = asyncio.Event()

    async def reply(request):
        loop.call_soon_threadsafe(began.set)
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    backend.reply = reply
    task = asyncio.ensure_future(coroutine.arun("a"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while not backend.cancelled:
        await asyncio.sleep(0)


def test_a_bug_of_the_program_is_raised(backend: FakeBackend):
    @tr.function
    def bug(s):
        s += "a" + tr.gen("x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bug.run()
    with pytest.raises(ZeroDivisionError):
        raise bug.run_batch([{}])[0].error()


def test_an_error_that_the_program_meets_is_a_value(backend: FakeBackend):
    backend.reply = lambda request: tr.Unreachable("gone")
    state = plain.run("a")
    assert isinstance(state.error(), tr.Unreachable) and state.ret_value is None


def test_functions_that_are_no_programs_are_refused():
    with pytest.raises(tr.ProgramError, match="must be s, got"):
        tr.function(lambda state: None)


def test_a_run_without_a_backend_says_how_to_get_one():
    with pytest.raises(tr.ProgramError, match="set_default_backend"):
        plain.run("a")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_coroutine_that_exits_ends_its_caller_and_not_the_loop(kind, backend: FakeBackend):
    @tr.function
    async def leaves(s):
        s += "a" + tr.gen("x")
        raise kind(3)

    with pytest.raises(kind):
        leaves.run()
    with pytest.raises(kind):
        leaves.run_batch([{}, {}])
    assert coroutine.run("a").ret_value[0] == "42"
