"""Addresses in turn, within one time limit; TLS."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from test.treadle.router.harness import WAIT_S, pass_time
from treadle.router import dialer as dialer_module
from treadle.router.connection import Connection
from treadle.router.dialer import Dialer, describe
from treadle.router.origin import Origin
from treadle.router.outcomes import Break, Broken


def make() -> Connection:
    return Connection(lambda _: None, lambda _: None)


class Named(Dialer):
    """`given`: what the name of any host stands for."""

    def __init__(self, given: list[str], timeout_s: float = 60.0) -> None:
        super().__init__(timeout_s, True)
        self.given = given

    async def _addresses(self, origin: Origin) -> list[str]:
        return self.given


@asynccontextmanager
async def listening(
    host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port of a server that says nothing."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.read()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def connected(dialer: Dialer, url: str) -> None:
    connection = await dialer.connect(Origin.parse(url), make)
    assert connection.is_usable and connection.is_quiet
    connection.abort()
    await asyncio.sleep(0)


async def test_the_next_address_is_tried_and_the_good_one_is_first_from_then_on():
    dialer = Named(["127.0.0.2", "127.0.0.1"])
    async with listening() as port:
        await connected(dialer, f"http://a:{port}")
    assert dialer.given == ["127.0.0.1", "127.0.0.2"]


async def test_a_silent_address_takes_its_share_of_the_time_only(monkeypatch: pytest.MonkeyPatch):
    loop, is_silent = asyncio.get_running_loop(), asyncio.Event()
    real = loop.create_connection

    async def create(factory, host, *args, **named):
        if host == "10.0.0.1":
            is_silent.set()
            await asyncio.Event().wait()
        return await real(factory, host, *args, **named)

    monkeypatch.setattr(loop, "create_connection", create)
    async with listening() as port:
        dialer = Named(["10.0.0.1", "127.0.0.1"], 120.0)
        connecting = asyncio.create_task(connected(dialer, f"http://a:{port}"))
        await is_silent.wait()
        pass_time(60.0)
        await connecting
    with pytest.raises(Broken, match="timed out") as error:
        await Named(["10.0.0.1"], 0.05).connect(Origin.parse(f"http://a:{port}"), make)
    assert error.value.kind is Break.NOT_SENT


async def test_names_are_looked_up_and_kept_for_a_while(monkeypatch: pytest.MonkeyPatch):
    dialer, loop = Dialer(60.0, True), asyncio.get_running_loop()
    num_asked = 0

    async def look_up(host, *args, **named):
        nonlocal num_asked
        num_asked += 1
        if not host.startswith("here"):
            raise socket.gaierror(-2, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{i}", 1)) for i in (1, 2)]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    origin = Origin.parse("http://here:1")
    for _ in range(2):
        assert await dialer._addresses(origin) == ["127.0.0.1", "127.0.0.2"]
    assert num_asked == 1
    known = await dialer._addresses(origin)
    known.reverse()  # as if the second had answered
    pass_time(dialer_module.NAME_S)
    assert await dialer._addresses(origin) == ["127.0.0.2", "127.0.0.1"] and num_asked == 2
    monkeypatch.setattr(dialer_module, "MAX_NAMES", 1)
    await dialer._addresses(Origin.parse("http://here.:1"))
    await dialer._addresses(origin)
    assert num_asked == 4
    with pytest.raises(Broken, match="gaierror") as error:
        await dialer.connect(Origin.parse("http://elsewhere:1"), make)
    assert error.value.kind is Break.NOT_SENT


async def test_a_name_that_cannot_be_asked_for_is_told():
    for host in ("a" * 300, "a\0b"):
        with pytest.raises(Broken, match="cannot connect") as error:
            await Dialer(60.0, True).connect(Origin(host, 1, False, b"x"), make)
        assert error.value.kind is Break.NOT_SENT


class Seen(Connection):
    """Tells what became of it."""

    def __init__(self, *, is_dying: bool) -> None:
        super().__init__(lambda _: None, lambda _: self.is_lost.set())
        self.is_dying = is_dying
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.is_dying:
            self.abort()


@pytest.mark.parametrize("is_dying", [True, False])
async def test_a_connection_that_is_of_no_use_is_closed(
    monkeypatch: pytest.MonkeyPatch, is_dying: bool
):
    def probe(sock: object) -> None:
        if not is_dying:
            raise OSError(9, "x")

    monkeypatch.setattr(dialer_module, "_probe_host", probe)
    made = Seen(is_dying=is_dying)
    async with listening() as port:
        with pytest.raises(Broken) as error:
            await Dialer(60.0, True).connect(Origin.parse(f"http://127.0.0.1:{port}"), lambda: made)
        assert error.value.kind is Break.NOT_SENT
        await asyncio.wait_for(made.is_lost.wait(), WAIT_S)


async def test_a_host_that_vanishes_is_asked_after():
    async with listening() as port:
        connection = await Dialer(60.0, True).connect(
            Origin.parse(f"http://127.0.0.1:{port}"), make
        )
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_limits() == (0, 0)  # it says what it could not send
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        connection.abort()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6")
async def test_ipv6():
    async with listening("::1") as port:
        await connected(Dialer(60.0, True), f"http://[::1]:{port}")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
async def test_certificates_are_checked_unless_told_otherwise(tmp_path: Path):
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key}"
    words += " -addext subjectAltName=DNS:localhost"
    subprocess.run(
        ["openssl", *words.split(), "-out", certificate], check=True, capture_output=True
    )
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=certificate)
    async with listening(tls=own) as port:
        await connected(Dialer(60.0, False), f"https://127.0.0.1:{port}")
        await connected(Dialer(60.0, trusting), f"https://localhost:{port}")
        refused = [(Dialer(60.0, True), "localhost"), (Dialer(60.0, trusting), "127.0.0.1")]
        for dialer, host in refused:
            with pytest.raises(Broken, match="SSLCertVerificationError") as error:
                await dialer.connect(Origin.parse(f"https://{host}:{port}"), make)
            assert error.value.kind is Break.NOT_SENT


def test_errors_are_told_without_addresses():
    assert describe(TimeoutError()) == "cannot connect (timed out)"
    refused = ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 1)")
    assert describe(refused) == "cannot connect (Connection refused)"
    assert describe(ssl.SSLError(1, "x")) == "cannot connect (SSLError)"
    assert describe(ConnectionResetError()) == "cannot connect (ConnectionResetError)"
