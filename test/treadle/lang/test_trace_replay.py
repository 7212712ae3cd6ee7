"""Replays: the recorded requests in the order of their causes, and what differs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend
from test.treadle.lang.test_trace import everything, scripted
from treadle.lang.trace_replay import compare, replay


async def test_the_same_is_asked_again_in_the_order_of_causes(backend: FakeBackend):
    scripted(backend)
    state = await asyncio.to_thread(everything.run)
    trace = state.trace()
    other = scripted(FakeBackend())
    again = await replay(trace, other)
    key = [request for _, request in backend.asked]
    assert [request for _, request in other.asked[:2]] == key[:2]
    assert sorted(map(repr, (r for _, r in other.asked))) == sorted(map(repr, key))
    assert other.commits == backend.commits and other.scored == backend.scored
    found = compare(trace, again)
    assert (found.num_outputs, found.num_same, found.num_failed) == (4, 4, 0)
    assert {entry.branch for entry in again.entries}.isdisjoint(
        {entry.branch for entry in trace.entries}
    )
    parents = {span.parent for span in again.branches} - {None}
    assert parents == {again.branches[0].id}


async def test_other_outputs_and_failures_are_counted(backend: FakeBackend):
    scripted(backend)
    trace = (await asyncio.to_thread(everything.run)).trace()
    other = FakeBackend(lambda r: tr.Refused(400, "no") if r.prompt.tools else "42")
    found = compare(trace, await replay(trace, other))
    assert (found.num_same, found.num_failed) == (0, 2)


async def test_a_branch_waits_for_the_parent_it_was_forked_from(backend: FakeBackend):
    scripted(backend)
    trace = (await asyncio.to_thread(everything.run)).trace()
    gate, other = asyncio.Event(), FakeBackend()

    async def reply(request):
        if request.prompt.tools:
            await gate.wait()
        return "42"

    other.reply = reply
    task = asyncio.ensure_future(replay(trace, other))
    while not other.asked:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(other.asked) == 1
    gate.set()
    assert len((await task).entries) == len(trace.entries)


async def test_entries_that_took_no_time_do_not_wait_for_themselves(backend: FakeBackend):
    scripted(backend)
    trace = (await asyncio.to_thread(everything.run)).trace()
    instant = [replace(entry, start_s=1.0, end_s=1.0) for entry in trace.entries]
    trace = replace(trace, entries=tuple(instant))
    again = await asyncio.wait_for(replay(trace, scripted(FakeBackend())), 60)
    assert len(again.entries) == len(trace.entries)
