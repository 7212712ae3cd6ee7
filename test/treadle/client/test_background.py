"""The loop beside the program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from treadle.client.background import LoopThread, Once, background
from treadle.client.errors import ProgramError


async def value() -> int:
    return 42


def test_there_is_one_per_process():
    assert background() is background()
    assert background().wait(value()) == 42


def test_threads_that_come_first_at_once_get_the_same():
    made = []

    def slow() -> LoopThread:
        made.append(LoopThread())
        time.sleep(0.01)  # others are let in, if they can be
        return made[-1]

    once = Once(slow)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: once.get(), range(8)))
    assert found == set(made) and len(made) == 1
    made[0].stop()


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


FORKS = """
import asyncio, os
from treadle.client.background import LoopThread, Once, background
from treadle.client.client import Client

stopped = Once(LoopThread)
stopped.get().stop()

async def open_one(client):
    return client._http()

client = Client("http://127.0.0.1:1")
first = background().wait(open_one(client))
child = os.fork()
if not child:
    other = background().wait(open_one(client))
    background().wait(asyncio.sleep(0.01))
    assert other is not first and other._loop is not first._loop
    raise SystemExit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
background().wait(asyncio.sleep(0.01))
"""


def test_a_forked_child_has_a_loop_of_its_own():
    found = subprocess.run([sys.executable, "-c", FORKS], timeout=60, capture_output=True)
    assert (found.returncode, found.stderr.decode()) == (0, "")
