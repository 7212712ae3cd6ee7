"""Which connection is used, and when one is closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from test.treadle.router.fake_replica import FakeReplica, answer, hang
from test.treadle.router.harness import WAIT_S, pass_time, until
from treadle.router import pool as pool_module
from treadle.router.connection import Connection
from treadle.router.dialer import Dialer
from treadle.router.origin import Origin
from treadle.router.outcomes import Break, Broken
from treadle.router.pool import Pool

GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def pooled() -> AsyncIterator[tuple[Pool, FakeReplica, Origin]]:
    replica = await FakeReplica(answer()).start()
    pool = Pool(Dialer(60.0, True))
    try:
        yield pool, replica, Origin.parse(replica.url)
    finally:
        await pool.close()
        assert pool.num_open == 0
        await replica.stop()


async def ask(connection: Connection) -> bytes:
    return await connection.send(GET, b"", is_for_head=False).read_all()


async def test_a_connection_is_used_again_and_the_last_one_first():
    async with pooled() as (pool, _, origin):
        assert pool.take(origin) is None
        first, second = await pool.connect(origin), await pool.connect(origin)
        assert pool.num_idle == 0  # one is idle once it has answered
        await ask(first)
        await ask(second)
        assert pool.take(origin) is second and pool.take(origin) is first
        assert pool.take(origin) is None and pool.num_open == 2
        assert await ask(first) == b"{}"


async def test_origins_share_nothing():
    async with pooled() as (pool, replica, origin):
        await ask(await pool.connect(origin))
        assert pool.take(Origin.parse(f"https://127.0.0.1:{replica.port}")) is None
        assert pool.take(Origin.parse(f"{replica.url}/v")) is not None


async def test_one_that_the_replica_closed_is_never_used():
    async with pooled() as (pool, replica, origin):
        await ask(await pool.connect(origin))
        await replica.stop()
        await until(lambda: pool.num_open == 0)
        assert pool.take(origin) is None
        await replica.start()


@pytest.mark.parametrize("last", [b"", b"HTTP/1.1 408 X\r\n\r\n"])
async def test_nor_one_whose_end_the_loop_has_not_told_of(last: bytes):
    pool = Pool(Dialer(60.0, True))
    with socket.create_server(("127.0.0.1", 0)) as server:
        origin = Origin.parse(f"http://127.0.0.1:{server.getsockname()[1]}")
        for is_ended in (False, True):
            connection = await pool.connect(origin)
            wire, _ = server.accept()
            with wire:
                exchange = connection.send(GET, b"", is_for_head=False)
                wire.sendall(b"HTTP/1.1 204 X\r\n\r\n")
                await exchange.head()
                if is_ended:
                    wire.sendall(last)
                    wire.shutdown(socket.SHUT_WR)
                assert pool.take(origin) is (None if is_ended else connection)
    await pool.close()


async def test_idle_ones_are_closed_in_time():
    async with pooled() as (pool, _, origin):
        await ask(await pool.connect(origin))
        assert pool.num_idle == 1
        pass_time(pool_module.IDLE_S)
        await until(lambda: pool.num_open == 0)
        assert pool.num_idle == 0 and pool._sweeper is None


async def test_one_that_is_too_old_is_not_used(monkeypatch: pytest.MonkeyPatch):
    async with pooled() as (pool, _, origin):
        await ask(await pool.connect(origin))
        monkeypatch.setattr(pool_module, "IDLE_S", -1.0)
        assert pool.take(origin) is None
        await until(lambda: pool.num_open == 0)


async def test_closing_closes_those_that_are_used_too():
    async with pooled() as (pool, replica, origin):
        replica.script = hang
        connection = await pool.connect(origin)
        exchange = connection.send(GET, b"", is_for_head=False)
        await until(lambda: bool(replica.seen))
        await pool.close()
        await asyncio.wait_for(replica.seen[0].is_gone.wait(), WAIT_S)
        assert not connection.is_usable and not exchange.status
        with pytest.raises(Broken) as error:
            await pool.connect(origin)
        assert error.value.kind is Break.NOT_SENT
        await until(lambda: pool.num_open == 0)
