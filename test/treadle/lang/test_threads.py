"""Functions in daemon threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from treadle.lang.threads import Slots, in_daemon_thread

WHO = contextvars.ContextVar("WHO", default="")


async def test_values_errors_and_context_pass_through():
    WHO.set("me")
    assert await in_daemon_thread(WHO.get) == "me"
    thread = await in_daemon_thread(threading.current_thread)
    assert thread.daemon
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 / 0)


async def test_what_would_end_a_process_is_an_error():
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit"):
        await in_daemon_thread(leave)


async def test_functions_that_are_given_up_hold_no_slot_but_are_bounded():
    slots, never = Slots(2), threading.Event()
    for _ in range(4):
        began = asyncio.Event()
        waiting = asyncio.ensure_future(slots.run(lambda: never.wait(60), began.set))
        await began.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert slots.num_threads == 4
    with pytest.raises(RuntimeError, match="4 threads still run"):
        await slots.run(lambda: 1, lambda: None)
    never.set()
    while slots.num_threads:
        await asyncio.sleep(0)
    assert await slots.run(lambda: 1, lambda: None) == 1


async def test_so_many_functions_run_at_once_and_no_more():
    slots, gate, began = Slots(2), threading.Event(), []
    all_three = [
        asyncio.ensure_future(slots.run(lambda: gate.wait(60), lambda: began.append(1)))
        for _ in range(3)
    ]
    while len(began) < 2:
        await asyncio.sleep(0)
    assert slots.num_threads == 2
    gate.set()
    assert await asyncio.gather(*all_three) == [True] * 3 and len(began) == 3
