"""Exchanges over real sockets: flow in both directions, ends at every moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from test.treadle.router.fake_replica import LAST_CHUNK, STREAM, Wire, chunk
from test.treadle.router.harness import WAIT_S, until
from treadle.router.connection import HIGH_BYTES, Connection
from treadle.router.outcomes import Break, Broken

HI = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE = b"x" * (64 << 20)  # more than sockets hold
Serve = Callable[[Wire], Awaitable[None]]


class Told:
    def __init__(self) -> None:
        self.num_free = 0
        self.num_lost = 0

    def free(self, connection: Connection) -> None:
        self.num_free += 1

    def lost(self, connection: Connection) -> None:
        self.num_lost += 1


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[tuple[Connection, Told]]:
    """A connection to a server that does `serve` once and then closes."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(Wire(reader, writer))
        finally:
            writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    told = Told()
    port = server.sockets[0].getsockname()[1]
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(told.free, told.lost), "127.0.0.1", port
    )
    try:
        yield connection, told
    finally:
        connection.abort()
        await until(lambda: told.num_lost == 1)
        server.close()


def ask(connection: Connection, body: bytes = b""):
    return connection.send(GET, body, is_for_head=False)


async def test_one_exchange_after_another():
    async def serve(wire: Wire) -> None:
        for _ in range(2):
            await wire.reader.readuntil(b"\r\n\r\n")
            await wire.write(HI)
        await wire.reader.read()

    async with connected(serve) as (connection, told):
        for number in (1, 2):
            exchange = ask(connection)
            await exchange.head()
            assert await exchange.read_all() == b"hi"
            exchange.close()
            assert told.num_free == number and connection.is_usable


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 2", STREAM, STREAM + chunk(b"a"), HI[:-1], STREAM + b"5\r\nab"]
)
@pytest.mark.parametrize("is_reset", [False, True])
async def test_an_end_before_an_answer_is_whole_breaks_it(part: bytes, is_reset: bool):  # A14
    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(part)
        if is_reset:
            wire.reset()

    async with connected(serve) as (connection, told):
        exchange = ask(connection)
        with pytest.raises(Broken, match="broke") as error:
            await exchange.head()
            await exchange.read_all()
        assert error.value.kind is Break.NO_ANSWER
        await until(lambda: told.num_lost == 1)
        assert told.num_free == 0 and not connection.is_usable


async def test_a_body_may_end_with_its_connection():
    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with connected(serve) as (connection, told):
        exchange = ask(connection)
        assert await exchange.read_all() == b"all of it"
        assert told.num_free == 0


@pytest.mark.parametrize("data", [b"SSH-2.0\r\n", HI + HI, HI + b"garbage"])
async def test_what_is_no_answer_closes_the_connection(data: bytes):
    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(data)
        await wire.reader.read()

    async with connected(serve) as (connection, told):
        exchange = ask(connection)
        if data.startswith(HI):
            assert await exchange.read_all() == b"hi"
        else:
            with pytest.raises(Broken, match="malformed"):
                await exchange.head()
        await until(lambda: told.num_lost == 1)
        assert told.num_free == 0


async def test_bytes_while_nobody_asks_close_the_connection():
    late = asyncio.Event()

    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(HI)
        await late.wait()
        await wire.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await wire.reader.read()

    async with connected(serve) as (connection, told):
        await ask(connection).read_all()
        assert connection.is_usable
        late.set()
        await until(lambda: told.num_lost == 1)


async def test_a_reader_that_rests_holds_the_replica_back():  # A19
    sent = 0

    async def serve(wire: Wire) -> None:
        nonlocal sent
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(STREAM)
        piece = chunk(b"y" * 65_000)
        for _ in range(1000):
            await wire.write(piece)
            sent += 65_000
        await wire.write(LAST_CHUNK)

    async with connected(serve) as (connection, _):
        exchange = ask(connection)
        await exchange.head()
        await until(lambda: connection._is_paused)
        held = sum(map(len, exchange.answer.pieces))
        assert held <= 2 * HIGH_BYTES
        assert len(await exchange.read_all()) == 65_000_000 == sent


async def test_a_request_that_did_not_leave_whole_was_not_sent():  # 4.5
    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.reset()

    async with connected(serve) as (connection, _):
        with pytest.raises(Broken) as error:
            await ask(connection, LARGE).head()
        assert error.value.kind is Break.NOT_SENT


async def test_an_answer_may_come_before_the_request_was_sent():
    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await wire.reader.read()

    async with connected(serve) as (connection, told):
        exchange = ask(connection, LARGE)
        await exchange.head()
        assert (exchange.status, await exchange.read_all()) == (413, b"no")
        await until(lambda: told.num_lost == 1)
        assert told.num_free == 0


async def test_closing_what_is_not_whole_tells_the_replica():  # A20
    is_gone = asyncio.Event()

    async def serve(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        await wire.write(STREAM + chunk(b"a"))
        await wire.reader.read()
        is_gone.set()

    async with connected(serve) as (connection, _):
        exchange = ask(connection)
        await exchange.head()
        exchange.close()
        await asyncio.wait_for(is_gone.wait(), WAIT_S)
