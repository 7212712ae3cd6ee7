"""The merged stream of a request: its end, its error."""

from __future__ import annotations

import asyncio

import pytest

from treadle.srt.errors import WorkerLost
from treadle.srt.messages import Usage
from treadle.srt.tokenizer.choice import Delta
from treadle.srt.tokenizer.generation import Generation
from treadle.srt.tokenizer.stats import Meter
from treadle.srt.tokenizer.trail import Ending

from .test_choice import make


def delta(index: int, ending: str | None = None) -> Delta:
    return Delta(index, "x", (1,), (), Usage(1, 1, 0, 0), Ending(ending) if ending else None)


def generation(closed: list[Generation]) -> Generation:
    return Generation("r", (make(), make()), Meter(None, is_streaming=True), closed.append)


async def test_ends_after_the_last_choice():
    stream = generation([])
    for item in (delta(0), delta(1, "stop"), delta(0, "length")):
        stream.put(item)
    assert [d.index async for d in stream] == [0, 1, 0]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_error_closes_and_is_raised_once():
    closed: list[Generation] = []
    stream = generation(closed)
    stream.put(WorkerLost("gone"))
    with pytest.raises(WorkerLost):
        await anext(stream)
    stream.close()
    assert closed == [stream]
    assert [d async for d in stream] == []


async def test_reader_that_waits_is_woken_by_any_item():
    stream = generation([])
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not stream.has_delta
    stream.put(delta(0))
    stream.put(delta(1, "stop"))
    assert (await reading).index == 0
    assert stream.has_delta
    reading.cancel()
    await anext(stream)
    assert not stream.has_delta
    stream.put(WorkerLost("gone"))
    assert not stream.has_delta  # an error is no delta: what was gathered goes out before it
