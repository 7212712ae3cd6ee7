"""The loop beside the program."""

from __future__ import annotations

import asyncio

import pytest

from treadle.client.background import LoopThread, background
from treadle.client.errors import ProgramError


async def value() -> int:
    return 42


def test_there_is_one_per_process():
    assert background() is background()
    assert background().wait(value()) == 42


def test_waiting_on_the_loop_itself_is_refused():
    async def wrong() -> None:
        background().wait(value())

    with pytest.raises(ProgramError, match="own loop"):
        background().wait(wrong())


def test_stopping_closes_what_is_open_and_ends_what_runs():
    thread, closed = LoopThread(), []

    async def close() -> None:
        closed.append(True)

    thread.at_exit(close)
    running = thread.start(asyncio.sleep(3600))
    thread.call(lambda: None)
    thread.stop()
    thread.stop()
    assert closed == [True] and running.cancelled()
