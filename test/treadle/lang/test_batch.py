"""Batches: order, cap, progress, and what all prompts begin with."""

from __future__ import annotations

import asyncio
import threading

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend, noting
from treadle.lang import batch
from treadle.lang.batch import common_prompt, num_at_once
from treadle.lang.prompt import ChatPrompt, TextPrompt


@pytest.fixture(autouse=True)
def patient_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, the second prompt comes in time."""
    monkeypatch.setattr(batch, "SECOND_S", 60.0)


SHARED = "Every word of this line is the same in all of the prompts of the batch. "


@tr.function
def plain(s, word):
    s += SHARED + word + tr.gen("x")
    return s["x"] + word


@tr.function
async def coroutine(s, word):
    s += SHARED + word + tr.gen("x")
    return await s.read("x") + word


@pytest.mark.parametrize("program", [plain, coroutine])
@pytest.mark.parametrize("generator_style", [False, True])
def test_results_come_in_the_order_of_the_arguments(program, generator_style, backend: FakeBackend):
    words = [{"word": str(i)} for i in range(20)]
    states = program.run_batch(words, num_threads=4, generator_style=generator_style)
    assert [state.ret_value for state in states] == [f"42{i}" for i in range(20)]


@pytest.mark.parametrize("program", [plain, coroutine])
def test_who_leaves_early_ends_what_still_runs(program, backend: FakeBackend):
    began, ended = threading.Event(), threading.Event()

    async def reply(request):
        if request.prompt.text.endswith("0"):
            return "42"
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    backend.reply = reply
    states = program.run_batch([("0",), ("1",)], num_threads=2, generator_style=True)
    assert next(states)["x"] == "42" and began.wait(60)
    states.close()
    assert ended.wait(60)


@pytest.mark.parametrize("program", [plain, coroutine])
def test_what_all_begin_with_is_computed_once_and_first(program, backend: FakeBackend):
    seen: list[int] = []
    backend.reply = noting(seen, lambda: len(backend.commits))
    program.run_batch([(str(i),) for i in range(8)])
    assert backend.commits == [TextPrompt(SHARED)] and seen == [1] * 8


@pytest.mark.parametrize("program", [plain, coroutine])
def test_no_more_than_the_cap_run_at_once(program, backend: FakeBackend):
    now, most = 0, 0

    async def reply(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return "42"

    backend.reply = reply
    program.run_batch([(str(i),) for i in range(12)], num_threads=3)
    assert 1 <= most <= 3


def test_errors_are_values_of_their_run(backend: FakeBackend):
    backend.reply = lambda r: tr.Refused(400, "bad") if r.prompt.text.endswith("1") else "42"
    states = plain.run_batch([("0",), ("1",), ("2",)])
    assert [state.error() is None for state in states] == [True, False, True]


def test_the_bar_counts_runs(backend: FakeBackend, capsys):
    plain.run_batch([("0",), ("1",)], progress_bar=True)
    assert "2/2" in capsys.readouterr().err


def test_a_batch_of_coroutines_has_no_threads(backend: FakeBackend):
    before = threading.active_count()
    most: list[int] = []
    backend.reply = noting(most, threading.active_count)
    coroutine.run_batch([(str(i),) for i in range(100)])
    assert max(most) <= before + 1  # the loop's own


def test_the_gate_does_not_hold_runs_that_ask_nothing(backend: FakeBackend):
    asks = tr.function(lambda s, n: s.append("a" + tr.gen("x")) if n else None)
    states = asks.run_batch([(0,), (0,), (1,)])
    assert states[2]["x"] == "42" and backend.commits == []


def test_chats_share_whole_messages():
    def chat(*words: str) -> ChatPrompt:
        return ChatPrompt(tuple({"role": "user", "content": word} for word in words), "answer")

    shared = common_prompt(chat(SHARED, "a"), chat(SHARED, "b"))
    assert shared == ChatPrompt(({"role": "user", "content": SHARED},), "message")
    assert common_prompt(chat("a"), chat("a")) is None  # not worth a request
    assert common_prompt(chat(SHARED), TextPrompt(SHARED)) is None


def test_the_cap_is_that_of_sglang():
    assert num_at_once("auto") >= 96 and num_at_once(3) == 3
