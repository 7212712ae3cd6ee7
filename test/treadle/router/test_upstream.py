"""Exchanges with a replica: what goes out, and what an end says of the request."""

from __future__ import annotations

import asyncio
import random

import pytest

from test.treadle.router.fake_replica import (
    LAST_CHUNK,
    STREAM,
    FakeReplica,
    answer,
    chunk,
    hang,
    head,
    reset_before_headers,
)
from test.treadle.router.harness import WAIT_S, pass_time, until
from treadle.router.incoming import ReadRules, read_incoming
from treadle.router.keys import KeyRules
from treadle.router.lifecycle import Life, LifeRules
from treadle.router.origin import Origin
from treadle.router.outcomes import Break, Broken
from treadle.router.replicas import Address, Replica
from treadle.router.upstream import Upstream, header_value, request_head, response_headers


def replica_of(url: str, api_key: str = "") -> Replica:
    return Replica(Address.parse(url), Life(LifeRules(), is_first=True), api_key)


async def ask(
    url: str, timeout_s: float = 60.0, api_key: str = "", path: str = "/x"
) -> tuple[int, bytes]:
    async with Upstream(60.0, 60.0) as upstream:
        return await upstream.ask(replica_of(url, api_key), "GET", path, timeout_s=timeout_s)


async def test_questions_of_the_router_carry_its_key():
    replica = await FakeReplica(answer(200, b"yes")).start()
    assert await ask(replica.url, api_key="k") == (200, b"yes")
    assert await ask(replica.url, path="/x?q=\u4e00 b") == (200, b"yes")
    assert replica.seen[1].path == "/x?q=%E4%B8%80%20b"
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
    task = asyncio.create_task(ask(replica.url, timeout_s=60.0))
    await until(lambda: bool(replica.seen))
    pass_time(60.0)
    with pytest.raises(Broken) as error:
        await task
    assert error.value.kind is Break.TIMEOUT
    await replica.stop()


async def test_an_answer_that_does_not_end_in_time_is_given_up():
    async def script(seen, wire) -> None:
        await wire.write(STREAM + chunk(b"a"))
        await hang(seen, wire)

    replica = await FakeReplica(script).start()
    async with Upstream(60.0, 60.0) as upstream:
        asking = upstream.ask(replica_of(replica.url), "GET", "/x", timeout_s=60.0)
        task = asyncio.create_task(asking)
        await until(lambda: bool(replica.seen))
        pass_time(60.0)
        with pytest.raises(Broken) as error:
            await task
        assert error.value.kind is Break.TIMEOUT
        await asyncio.wait_for(replica.seen[0].is_gone.wait(), WAIT_S)
        await until(lambda: upstream.pool.num_open == 0)
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


def incoming(method: str = "POST", body: bytes = b""):
    scope = {"method": method, "path": "/generate", "query_string": b"a=%20"}
    raw = [(b"X-Own", b"\xe9"), (b"Content-Length", b"%d" % len(body)), (b"Host", b"router")]
    return read_incoming(scope, raw, body, ReadRules(KeyRules()))


async def test_bytes_of_headers_pass_as_they_came():
    replica = await FakeReplica(answer(200, b"yes", x_b="1")).start()
    async with Upstream(60.0, 60.0) as upstream:
        exchange = await upstream.send(replica_of(replica.url + "/v"), incoming(), "a\r\nb: \u4e00")
        assert (exchange.status, exchange.header("x-b")) == (200, "1")
        exchange.close()
    (seen,) = replica.seen
    assert seen.path == "/v/generate?a=%20" and seen.headers["x-own"] == "\xe9"
    assert seen.headers["host"] == f"127.0.0.1:{replica.port}"
    assert seen.headers["content-length"] == "0" and seen.headers["x-rid"] == "a??b: ?"
    await replica.stop()


@pytest.mark.parametrize(
    ("method", "has_length"), [("POST", True), ("GET", False), ("HEAD", False)]
)
def test_a_length_is_told_where_a_body_is_meant(method: str, has_length: bool):
    origin = Origin.parse("http://a:1")
    assert (b"content-length: 0" in request_head(origin, method, "/", [], b"")) == has_length
    assert b"content-length: 1\r\n\r\n" in request_head(origin, method, "/", [], b"x")


@pytest.mark.parametrize("part", ["\r\n", "\n", "\r"])
def test_what_leaves_is_one_request(part: str):
    origin, hidden = Origin.parse("http://a:1"), f"x{part}b: c"
    with pytest.raises(ValueError, match="breaks its line"):
        request_head(origin, "GET", f"/{hidden}", [], b"")
    for header in ((hidden.encode(), b"v"), (b"a", hidden.encode())):
        with pytest.raises(ValueError, match="breaks its line"):
            request_head(origin, "GET", "/", [header], b"")
    replica = replica_of("http://a:1", api_key=hidden)
    with pytest.raises(Broken) as error:
        asyncio.run(Upstream(60.0, 60.0).ask(replica, "GET", "/"))
    assert error.value.kind is Break.NOT_SENT


@pytest.mark.parametrize("status", [200, 204, 304])
async def test_headers_of_the_connection_do_not_pass(status: int):
    named = {"connection": "X-Hop, keep-alive", "x-hop": "1", "keep-alive": "timeout=5"}

    async def script(seen, wire) -> None:
        await wire.write(head(status, {**named, "x-b": "2", "date": "d", "content-length": "0"}))

    replica = await FakeReplica(script).start()
    async with Upstream(60.0, 60.0) as upstream:
        exchange = await upstream.send(replica_of(replica.url), incoming("GET"), "r")
        expected = [(b"x-b", b"2")] + [(b"content-length", b"0")] * (status == 200)
        assert response_headers(exchange) == expected
        exchange.close()
    await replica.stop()


async def test_large_bodies_arrive_whole():
    replica = await FakeReplica(answer()).start()
    body = bytes(range(256)) * 40_000
    async with Upstream(60.0, 60.0) as upstream:
        for _ in range(2):
            exchange = await upstream.send(replica_of(replica.url), incoming("POST", body), "r")
            assert await exchange.read_all() == b"{}"
        assert upstream.pool.num_open == 1  # used again
    assert [seen.body == body for seen in replica.seen] == [True, True]
    await replica.stop()


async def test_an_answer_to_head_has_no_body():
    async def script(seen, wire) -> None:
        await wire.write(head(200, {"content-length": "100"}))

    replica = await FakeReplica(script).start()
    async with Upstream(60.0, 60.0) as upstream:
        exchange = await upstream.send(replica_of(replica.url), incoming("HEAD"), "r")
        assert exchange.header("content-length") == "100" and await exchange.read() == b""
        await until(lambda: upstream.pool.num_open == 0)
    await replica.stop()


async def test_a_connection_that_dies_before_an_answer_is_told_and_a_mere_question_put_again():
    replica = await FakeReplica(answer()).start()
    async with Upstream(60.0, 60.0) as upstream:
        known = replica_of(replica.url)
        await upstream.ask(known, "GET", "/x")
        replica.script = reset_before_headers
        with pytest.raises(Broken) as error:
            await upstream.ask(known, "POST", "/x")
        assert error.value.kind is Break.NO_ANSWER and len(replica.seen) == 2
        with pytest.raises(Broken):
            await upstream.ask(known, "GET", "/x")
        assert len(replica.seen) == 3  # over a new connection already
        replica.script = answer()
        await upstream.ask(known, "GET", "/x")

        async def once(seen, wire) -> None:
            replica.script = answer(200, b"again")
            wire.reset()

        replica.script = once
        assert await upstream.ask(known, "GET", "/x") == (200, b"again")
    await replica.stop()


async def test_giving_up_closes_the_connection():  # A20
    replica = await FakeReplica(hang).start()
    async with Upstream(60.0, 60.0) as upstream:
        task = asyncio.create_task(upstream.send(replica_of(replica.url), incoming(), "r"))
        await until(lambda: bool(replica.seen))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(replica.seen[0].is_gone.wait(), WAIT_S)
        await until(lambda: upstream.pool.num_open == 0)
    await replica.stop()


HEAD = head(200, {"content-length": "5"})
ANSWERS = [  # with their bodies
    (HEAD + b"hello", b"hello"),
    (STREAM + chunk(b"data: 1\n\n") + chunk(b"x" * 300) + LAST_CHUNK, b"data: 1\n\n" + b"x" * 300),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"hello", b"hello"),
    (head(204, {}), b""),
]
DAMAGE = [b"", b"\r\n", b"\0", b"zz", b"content-length: 1\r\n", HEAD]


async def test_whatever_comes_is_whole_or_broken_and_leaves_nothing_open():  # A14, A20
    rng, parts, is_cut = random.Random(7), [b""], False

    async def script(seen, wire) -> None:
        for part in parts:
            await wire.write(part)
            await asyncio.sleep(0)
        if is_cut:
            rng.choice([wire.reset, wire.writer.close])()

    replica = await FakeReplica(script).start()
    for number in range(240):
        data, body = rng.choice(ANSWERS)
        first, second = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        is_cut, is_left = number % 3 > 0, number % 5 == 0
        more = rng.choice(DAMAGE) if is_cut else b""
        end = second if number % 3 == 1 else len(data)
        parts = [data[:first], more + data[first:second], data[second:end]]
        async with Upstream(60.0, 60.0) as upstream:
            asking = asyncio.create_task(upstream.ask(replica_of(replica.url), "POST", "/x"))
            for _ in range(rng.randrange(8) if is_left else 0):
                await asyncio.sleep(0)
            if is_left:
                asking.cancel()
            (got,) = await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: upstream.pool.num_open <= upstream.pool.num_idle)
        if isinstance(got, tuple):
            assert got[1] == body or more
        else:
            assert is_left or (is_cut and isinstance(got, Broken)), got
    await replica.stop()


async def test_an_address_that_is_none_is_told():
    with pytest.raises(Broken) as error:
        await ask("http://a:99999")
    assert error.value.kind is Break.NOT_SENT


def test_a_header_holds_no_controls():
    assert header_value("a\r\nb\x7f\u00e9\u4e00") == b"a??b?\xe9?"
