"""Binding an address, and the end of the server."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from treadle.srt.config import NetSection
from treadle.srt.errors import ConfigError
from treadle.srt.net.http_server import HttpServer, bind


async def app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nobody asks")


async def test_server_ends_when_told_and_leaves_the_signals_alone():
    before = signal.getsignal(signal.SIGTERM)
    server = HttpServer(app, NetSection(keep_alive_s=330, log_level_http="info"))
    assert server.config.timeout_keep_alive == 330
    sock = bind("127.0.0.1", 0)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    async with asyncio.timeout(60):
        while not server.started:
            await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGTERM) is before
        server.should_exit = True
        await task


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", ""])
def test_hosts_bind_a_free_port(host: str):
    with bind(host, 0) as sock:
        assert sock.type == socket.SOCK_STREAM
        assert sock.getsockname()[1] > 0


def test_unknown_host_is_named():
    with pytest.raises(ConfigError, match="--host 999.1.1.1"):
        bind("999.1.1.1", 0)


def test_root_path_and_tls_reach_the_server():
    net = NetSection(log_level_http="info", root_path="/llm", ssl_keyfile="k", ssl_certfile="c")
    config = HttpServer(app, net).config
    assert (config.root_path, config.ssl_keyfile, config.ssl_certfile) == ("/llm", "k", "c")
    assert config.is_ssl
    assert not HttpServer(app, NetSection(log_level_http="info")).config.is_ssl
