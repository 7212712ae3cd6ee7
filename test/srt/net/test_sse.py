"""Framing of events, and the ways in which a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from treadle.srt.net.sse import DONE, EventStream, event


class Wire:
    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.is_broken = False

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.is_broken:
            raise OSError("closed")
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def two_events() -> AsyncIterator[bytes]:
    yield event(b"1")
    yield event(b"2") + DONE


async def endless(ended: list[str]) -> AsyncIterator[bytes]:
    try:
        yield event(b"1")
        await asyncio.Event().wait()
    finally:
        ended.append("producer")


async def test_events_are_lines_between_blank_lines_and_close_runs_once():
    wire, closed = Wire(), []
    await EventStream(two_events(), lambda: closed.append(1))({}, wire.receive, wire.send)
    assert wire.body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert wire.sent[0]["status"] == 200
    assert wire.sent[-1]["more_body"] is False
    assert closed == [1]


async def test_disconnect_stops_the_producer():
    wire = Wire()
    ended: list[str] = []
    stream = EventStream(endless(ended), lambda: ended.append("close"))
    task = asyncio.create_task(stream({}, wire.receive, wire.send))
    while not wire.body:
        await asyncio.sleep(0)
    wire.gone.set()
    await task
    assert sorted(ended) == ["close", "producer"]


async def test_closed_socket_is_no_error():
    wire, closed = Wire(), []
    wire.is_broken = True
    await EventStream(two_events(), lambda: closed.append(1))({}, wire.receive, wire.send)
    assert closed == [1]


async def test_cancelled_response_closes():
    wire = Wire()
    ended: list[str] = []
    stream = EventStream(endless(ended), lambda: ended.append("close"))
    task = asyncio.create_task(stream({}, wire.receive, wire.send))
    while not wire.body:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == ["close", "producer"]


async def test_bug_of_the_producer_is_raised():
    async def broken() -> AsyncIterator[bytes]:
        yield b""
        raise ZeroDivisionError

    wire = Wire()
    with pytest.raises(ZeroDivisionError):
        await EventStream(broken(), lambda: None)({}, wire.receive, wire.send)
