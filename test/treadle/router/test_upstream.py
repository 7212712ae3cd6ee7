"""What an exception of the HTTP client says of the request."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from test.treadle.router.fake_replica import FakeReplica, answer, hang
from treadle.router.lifecycle import Life, LifeRules
from treadle.router.outcomes import Break
from treadle.router.replicas import Address, Replica
from treadle.router.upstream import Broken, Upstream, describe, kind_of


def replica_of(url: str, api_key: str = "") -> Replica:
    return Replica(Address.parse(url), Life(LifeRules(), is_first=True), api_key)


async def ask(url: str, timeout_s: float = 5.0, api_key: str = "") -> tuple[int, bytes]:
    async with Upstream(5.0, 5.0) as upstream:
        return await upstream.ask(replica_of(url, api_key), "GET", "/x", timeout_s=timeout_s)


async def test_questions_of_the_router_carry_its_key():
    replica = await FakeReplica(answer(200, b"yes")).start()
    assert await ask(replica.url, api_key="k") == (200, b"yes")
    assert replica.seen[0].headers["authorization"] == "Bearer k"
    await replica.stop()


async def test_a_refused_connection_means_nothing_was_sent():
    replica = await FakeReplica().start()
    await replica.stop()
    with pytest.raises(Broken) as error:
        await ask(replica.url)
    assert error.value.kind is Break.NOT_SENT
    assert "127.0.0.1" not in error.value.reason  # clients read it


async def test_silence_is_a_timeout():
    replica = await FakeReplica(hang).start()
    with pytest.raises(Broken) as error:
        await ask(replica.url, timeout_s=0.05)
    assert error.value.kind is Break.TIMEOUT
    await replica.stop()


async def test_a_tls_failure_means_nothing_was_sent():  # 4.5
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    with pytest.raises(Broken) as error:
        await ask(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert error.value.kind is Break.NOT_SENT
    server.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (aiohttp.ServerDisconnectedError(), Break.NO_ANSWER),
        (ConnectionResetError(), Break.NO_ANSWER),
        (aiohttp.ClientPayloadError(), Break.NO_ANSWER),
        (aiohttp.SocketTimeoutError(), Break.TIMEOUT),
        (aiohttp.ConnectionTimeoutError(), Break.NOT_SENT),
        (TimeoutError(), Break.TIMEOUT),
    ],
)
def test_kinds_of_errors(error: Exception, kind: Break):
    assert kind_of(error) is kind
    assert describe(error)
