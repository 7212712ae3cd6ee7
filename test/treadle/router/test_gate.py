"""Concurrency and rate limits: bounded queue, 429 when full, 408 after too long."""

from __future__ import annotations

import asyncio

import pytest

from treadle.router.errors import TooMany, WaitedTooLong
from treadle.router.gate import Gate


async def test_without_limits_everybody_enters():
    gate = Gate(-1, -1.0, 0, 1.0)
    for _ in range(100):
        await gate.enter()


async def test_the_next_in_line_enters_when_one_leaves():
    gate = Gate(1, -1.0, 5, 10.0)
    await gate.enter()
    order: list[int] = []

    async def wait(i: int) -> None:
        await gate.enter()
        order.append(i)

    tasks = [asyncio.create_task(wait(i)) for i in range(3)]
    await asyncio.sleep(0)
    assert gate.num_waiting == 3 and not order
    for _ in range(3):
        gate.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2] and gate.num_waiting == 0


async def test_a_full_queue_refuses_at_once():
    gate = Gate(1, -1.0, 0, 10.0)
    await gate.enter()
    with pytest.raises(TooMany) as error:
        await gate.enter()
    assert error.value.status == 429


async def test_waiting_too_long_is_a_408_and_frees_its_place():
    gate = Gate(1, -1.0, 1, 0.02)
    await gate.enter()
    with pytest.raises(WaitedTooLong) as error:
        await gate.enter()
    assert error.value.status == 408 and gate.num_waiting == 0
    gate.leave()
    await gate.enter()


async def test_who_gives_up_leaves_no_hole():
    gate = Gate(1, -1.0, 5, 10.0)
    await gate.enter()
    lost = asyncio.create_task(gate.enter())
    kept = asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    lost.cancel()
    gate.leave()  # before the one that gave up has noticed
    await asyncio.gather(lost, return_exceptions=True)
    await asyncio.wait_for(kept, 60.0)
    gate.leave()
    await asyncio.wait_for(gate.enter(), 60.0)


async def test_a_turn_that_came_while_giving_up_goes_to_the_next():
    gate = Gate(1, -1.0, 5, 10.0)
    await gate.enter()
    lost = asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    gate.leave()  # its turn
    lost.cancel()  # and its end
    await asyncio.gather(lost, return_exceptions=True)
    await asyncio.wait_for(gate.enter(), 60.0)


async def test_a_rate_lets_a_burst_through_and_then_that_many_per_second():
    gate = Gate(-1, 50.0, 100, 10.0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(60):
        await gate.enter()
        gate.leave()
    assert loop.time() - began >= 10 / 50 * 0.9
