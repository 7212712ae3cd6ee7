"""The event log: every reader gets everything."""

from __future__ import annotations

import asyncio

from treadle.lang.events import EventLog, TextEvent


async def read(log: EventLog) -> str:
    return "".join([event.text async for event in log.follow()])


async def test_readers_get_all_events_whenever_they_come():
    log = EventLog(is_kept=True)
    log.add(TextEvent("a"))
    early = [asyncio.ensure_future(read(log)) for _ in range(2)]
    await asyncio.sleep(0)
    log.add(TextEvent("b"))
    await asyncio.sleep(0)
    early[0].cancel()  # a reader that goes disturbs nobody
    log.add(TextEvent("c"))
    log.close()
    assert await early[1] == "abc" == await read(log)


async def test_a_log_that_nobody_watches_keeps_nothing():
    log = EventLog(is_kept=False)
    log.add(TextEvent("a"))
    assert log.events == []
