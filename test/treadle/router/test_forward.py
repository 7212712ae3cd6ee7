"""Clients that leave or are slow, ids, limits (rules A19, A20, A23)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from test.treadle.router.fake_replica import STREAM, answer, chunk, hang, head
from test.treadle.router.harness import WAIT_S, routing, until
from treadle.router.forward import read_body
from treadle.srt.errors import Aborted, TooLarge

EVENT = b'data: {"text": "' + b"x" * 4000 + b'"}\n\n'


@pytest.mark.parametrize("body", [b"{}", b'{"stream": true}'])
async def test_a_client_that_leaves_before_the_first_byte_ends_the_upstream(body: bytes):  # A20
    async with routing(hang) as bench:
        _, writer = await bench.send_raw(body)
        await until(lambda: bool(bench.replicas[0].seen))
        writer.close()
        await asyncio.wait_for(bench.replicas[0].seen[0].is_gone.wait(), WAIT_S)
        await until(lambda: not len(bench.router._inflight))
        fleet = bench.router._replicas.fleet
        assert fleet.load(bench.replicas[0].url) == 0.0
        assert bench.life(bench.replicas[0]).state == "ready"  # it did nothing wrong
        assert "treadle:router_clients_gone_total 1.0" in await bench.metrics()
        assert len(bench.replicas[0].seen) == 1  # never tried again


async def test_a_client_that_leaves_in_mid_stream_ends_the_upstream():  # A20
    async def script(seen, wire):
        await wire.write(STREAM + chunk(EVENT))
        await hang(seen, wire)

    async with routing(script) as bench:
        reader, writer = await bench.send_raw(b"{}")
        await reader.readuntil(EVENT)
        writer.close()
        await asyncio.wait_for(bench.replicas[0].seen[0].is_gone.wait(), WAIT_S)
        await until(lambda: not len(bench.router._inflight))


async def test_a_slow_client_slows_the_replica_and_holds_little_here():  # A19
    written = 0
    limit = 64 << 20

    async def script(seen, wire):
        nonlocal written
        await wire.write(STREAM)
        with contextlib.suppress(ConnectionError):
            while written < limit:
                await wire.write(chunk(EVENT))
                written += len(EVENT)

    async with routing(script) as bench:
        reader, writer = await bench.send_raw(b"{}")
        await reader.readexactly(100)
        before = -1
        while before != written:  # until nothing moves any more
            before = written
            await asyncio.sleep(0.2)
        assert written < 24 << 20  # socket buffers of the kernel, and a little of ours
        writer.transport.abort()
        await until(lambda: not len(bench.router._inflight))


async def test_ids_in_bodies_are_the_clients_and_ours_are_unique():  # A23
    async with routing(hang) as bench:
        connections = [
            await bench.send_raw(body, headers="X-Request-ID: same\r\n")
            for body in (b"{}", b"{}", b'{"rid": "own"}', b'{"rid": ["a", "b"]}')
        ]
        await until(lambda: len(bench.replicas[0].seen) == 4)
        rids = sorted(seen.headers["x-rid"] for seen in bench.replicas[0].seen)
        assert rids == ["a", "own", "same", "same~2"]
        flights = bench.router._inflight
        assert flights.find("b") is flights.find("a") is not None
        for _, writer in connections:
            writer.close()
        await until(lambda: not len(flights))


async def test_a_body_that_is_too_large_is_refused():
    async with routing(answer(), net={"max_body_bytes": 1024}) as bench:
        got = await bench.post("/generate", {"text": "x" * 2000})
        assert got.status_code == 413
        assert not bench.replicas[0].seen


async def test_one_request_after_the_other_uses_one_connection():
    ports = set()

    async def script(seen, wire):
        ports.add(wire.writer.get_extra_info("peername")[1])
        await answer(200, b"x" * 1000)(seen, wire)

    async with routing(script) as bench:
        for _ in range(5):
            await bench.post()
        assert len(ports) == 1


async def test_a_drained_replica_ends_its_streams_when_its_time_is_over():  # A13
    async def script(seen, wire):
        await wire.write(STREAM + chunk(EVENT))
        await hang(seen, wire)

    async with routing(script, answer(), limits={"drain_timeout_s": 0.5}) as bench:
        bench.replicas[1].script = script
        reader, writer = await bench.send_raw(b"{}", headers="X-Session-ID: s\r\n")
        await reader.readuntil(EVENT)
        (home,) = [r for r in bench.replicas if r.seen]
        (other,) = bench.others(home.url)
        other.script = answer(200, b"other")
        got = await bench.http.delete(f"/workers/{home.url}")
        assert got.status_code == 202
        moved = await bench.post(x_session_id="s")
        assert moved.content == b"other"  # re-pinned at its next turn
        assert moved.headers["x-router-decision"] == "failover"
        rest = await reader.readuntil(b"0\r\n\r\n")
        assert b'data: {"error":' in rest and b"drained" in rest
        assert b"[DONE]" not in rest
        writer.close()
        await until(lambda: len(bench.router._replicas) == 1)


@pytest.mark.parametrize(
    ("method", "status", "length"),
    [("GET", 204, ""), ("GET", 204, "5"), ("GET", 304, "5"), ("HEAD", 200, "5"), ("HEAD", 204, "")],
)
async def test_head_and_empty_answers_pass(method: str, status: int, length: str):
    async def script(seen, wire):
        await wire.write(head(status, {"content-length": length} if length else {}))

    async with routing(script) as bench:
        for _ in range(2):
            got = await bench.http.request(method, "/anything")
            assert (got.status_code, got.content) == (status, b"")
        assert got.headers.get("content-length", "") == (length if method == "HEAD" else "")
        assert len(bench.replicas[0].seen) == 2


def receive_of(*messages):
    queue = list(messages)

    async def receive():
        return queue.pop(0)

    return receive


async def test_bodies_are_joined_bounded_and_may_break_off():
    part = {"type": "http.request", "body": b"ab", "more_body": True}
    last = {"type": "http.request", "body": b"c"}
    assert await read_body(receive_of(part, last), 3) == b"abc"
    with pytest.raises(TooLarge):
        await read_body(receive_of(part, last), 2)
    with pytest.raises(Aborted):
        await read_body(receive_of(part, {"type": "http.disconnect"}), 9)
