"""Requests by id, and their end from outside."""

from __future__ import annotations

import asyncio

from treadle.router.inflight import Flight, Inflight
from treadle.srt.errors import Aborted


async def test_flights_are_found_by_any_of_their_ids_and_by_replica():
    inflight = Inflight()
    task = asyncio.create_task(asyncio.sleep(60))
    first, second = Flight(("a", "b"), task), Flight(("a",), task, replica="r")
    for flight in (first, second):
        inflight.enter(flight)
    assert inflight.find("a") is inflight.find("b") is first
    assert inflight.at("r") == [second] and len(inflight) == 2
    assert inflight.free_name("c") == "c" and inflight.free_name("a") == "a~2"
    inflight.leave(second)
    assert inflight.find("a") is first
    inflight.leave(first)
    assert inflight.find("a") is None and list(inflight) == []
    task.cancel()


async def test_only_the_first_end_counts():
    task = asyncio.create_task(asyncio.sleep(60))
    flight = Flight(("a",), task)
    flight.end(Aborted("one"))
    flight.end(Aborted("two"))
    flight.leave()
    assert flight.ended_by.message == "one" and not flight.is_client_gone and flight.is_ended
    assert task.cancelling() == 1
    await asyncio.gather(task, return_exceptions=True)
