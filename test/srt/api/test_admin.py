"""Abort, flush and health."""

from __future__ import annotations

import asyncio
import re

import pytest

from test.serving import Bench, FakeEngine, hold, refuse, serving
from treadle.srt.api import admin
from treadle.srt.lifecycle import Failed


async def start(bench: Bench, body: dict[str, object]) -> asyncio.Task[object]:
    bench.engine.script = hold
    count = len(bench.engine.requests)
    task: asyncio.Task[object] = asyncio.create_task(bench.post("/generate", body))
    while len(bench.engine.requests) == count:
        await asyncio.sleep(0)
    return task


async def test_abort_is_exact_by_choice_prompt_or_request(bench: Bench):
    two: dict[str, object] = {"text": "a", "rid": "ab", "sampling_params": {"n": 2}}
    first, second = await start(bench, {"text": "a", "rid": "abc"}), await start(bench, two)
    counts = [
        (await bench.post("/abort_request", {"rid": rid})).json()["num_aborted"]
        for rid in ("a", "ab-0", "ab")
    ]
    assert counts == [0, 1, 1]
    await second
    prefix = await bench.post("/abort_request", {"rid": "a", "prefix": True})
    assert prefix.json()["num_aborted"] == 1
    await first


async def test_abort_all_and_bad_aborts(bench: Bench):
    task = await start(bench, {"text": ["a", "b"]})
    response = await bench.post("/abort_request", {"abort_all": True})
    assert response.json()["num_aborted"] == 2
    await task
    assert (await bench.post("/abort_request", {})).status_code == 400
    assert (await bench.post("/abort_request", {"rid": "unknown"})).status_code == 200


async def test_flush_says_no_while_something_runs(bench: Bench):
    bench.engine.is_flushable = False
    response = await bench.client.get("/flush_cache")
    assert response.status_code == 400
    assert "1 request runs" in response.text
    asking = asyncio.create_task(bench.client.post("/flush_cache?timeout=30"))
    while not bench.engine.inbox.empty() or len(bench.engine.sent) < 2:
        await asyncio.sleep(0)
    bench.engine.is_flushable = True
    assert (await asking).status_code == 200


@pytest.mark.parametrize("timeout", ["x", "nan", "-1", ""])
async def test_odd_flush_timeouts_do_not_wait(bench: Bench, timeout: str):
    bench.engine.is_flushable = False
    response = await bench.client.get("/flush_cache", params={"timeout": timeout})
    assert response.status_code == 400


async def test_flush_ends_with_its_client(bench: Bench):
    """Else each one that gave up would ask the engine twenty times a second for an hour."""
    bench.engine.is_flushable = False
    scope = {
        "type": "http", "method": "POST", "path": "/flush_cache", "headers": [],
        "query_string": b"timeout=3600",
    }  # fmt: skip

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError("nobody is there to read it")

    async with asyncio.timeout(60):
        await bench.app(scope, receive, send)


async def test_health_follows_the_state():
    async with serving(is_ready=False) as bench:
        for path in ("/health", "/ready", "/ping", "/health_generate"):
            assert (await bench.client.get(path)).status_code == 503
    async with serving() as bench:
        assert (await bench.client.get("/health")).status_code == 200
        assert bench.engine.sent == []
        assert (await bench.client.get("/health_generate")).status_code == 200
        assert bench.engine.requests[0].rid.startswith("HEALTH_CHECK")
        assert bench.engine.requests[0].sampling.max_new_tokens == 1
        bench.frontend.drain()
        assert (await bench.client.get("/health")).status_code == 503


async def test_silence_with_requests_in_flight_is_probed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    task = await start(bench, {"text": "a", "rid": "r"})
    monkeypatch.setattr(admin, "SILENCE_S", -1.0)
    monkeypatch.setattr(admin, "PROBE_TIMEOUT_S", 0.01)
    assert (await bench.client.get("/health")).status_code == 503
    assert len(bench.engine.requests) == 2
    monkeypatch.setattr(admin, "PROBE_TIMEOUT_S", 60.0)
    asking = asyncio.create_task(bench.client.get("/health"))
    while len(bench.engine.requests) < 3:
        await asyncio.sleep(0)
    bench.engine.emit("r", b"h")  # somebody else's token is a sign of life too
    assert (await asking).status_code == 200
    await bench.post("/abort_request", {"abort_all": True})
    await task
    assert bench.frontend.num_live == 0


async def test_health_check_is_503_when_the_engine_refuses_or_dies():
    async with serving(FakeEngine(script=refuse(503, "the queue is full"))) as bench:
        assert (await bench.client.get("/health_generate")).status_code == 503
    async with serving(FakeEngine(script=hold)) as bench:
        asking = asyncio.create_task(bench.client.get("/health_generate"))
        while not bench.engine.live:
            await asyncio.sleep(0)
        bench.engine.put(Failed("worker", 0, "x"))
        assert (await asking).status_code == 503


async def test_probes_are_not_counted(bench: Bench):
    await bench.client.get("/health_generate")
    text = (await bench.client.get("/metrics")).text
    counts = re.findall(r"generation_tokens_total\{.*\} (\S+)", text)
    assert set(counts) == {"0.0"}
