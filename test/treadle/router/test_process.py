"""The process as a whole: start, stop, errors of its configuration."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from test.treadle.router.fake_replica import STREAM, answer, chunk, hang
from test.treadle.router.harness import WAIT_S, config_of, routing, until
from treadle.router.config import RouterConfig
from treadle.router.probes import Prober
from treadle.router.process import Router, make_upstream, settle
from treadle.srt.errors import ConfigError, NotAdmitted
from treadle.srt.net.http_server import bind

EVENT = b"data: 1\n\n"


async def half(seen, wire) -> None:
    await wire.write(STREAM + chunk(EVENT))
    await hang(seen, wire)


async def test_a_stop_lets_requests_end():
    done = asyncio.Event()

    async def slow(seen, wire) -> None:
        await done.wait()
        await answer(200, b"late")(seen, wire)

    async with routing(slow) as bench:
        waiting = asyncio.create_task(bench.post())
        await until(lambda: bool(bench.replicas[0].seen))
        bench.router._stop()
        assert (await bench.http.get("/ready")).status_code == 503
        done.set()
        assert (await waiting).content == b"late"


async def test_a_second_stop_tells_who_still_waits():
    async with routing(half) as bench:
        reader, writer = await bench.send_raw(b"{}")
        await reader.readuntil(EVENT)
        bench.router._stop()
        bench.router._stop()
        rest = await reader.read()
        assert b"shutting down" in rest
        writer.close()


async def test_a_router_that_never_had_a_worker_gives_up():
    config = config_of(["http://127.0.0.1:1"], workers={"startup_timeout_s": 0.1,
                                                        "urls": "http://127.0.0.1:1"})  # fmt: skip
    async with make_upstream(config) as upstream:
        router = Router(config, upstream)
        with pytest.raises(NotAdmitted, match="no worker"), bind("127.0.0.1", 0) as sock:
            await router.serve(sock)


async def test_a_task_that_fails_ends_the_router(monkeypatch: pytest.MonkeyPatch):
    async def broken(self: Prober) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Prober, "run", broken)
    config = config_of(["http://127.0.0.1:1"])
    async with make_upstream(config) as upstream:
        router = Router(config, upstream)
        with pytest.raises(RuntimeError, match="a bug"), bind("127.0.0.1", 0) as sock:
            await router.serve(sock)


async def test_metrics_have_a_port_of_their_own():
    with socket.socket() as held:  # not listening, so nobody else is given the port
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        watch = {"prometheus_port": port, "prometheus_host": "127.0.0.1"}
        async with routing(answer(), watch=watch), httpx.AsyncClient(timeout=WAIT_S) as http:
            got = await http.get(f"http://127.0.0.1:{port}/metrics")
            assert "smg_worker_pool_size" in got.text


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
async def test_tls_ends_here_and_keys_pass_through(tmp_path: Path):
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key}"
    subprocess.run(
        ["openssl", *words.split(), "-out", certificate], check=True, capture_output=True
    )
    net = {"ssl_keyfile": key, "ssl_certfile": certificate}
    async with routing(answer(200, b"inside"), net=net) as bench:
        url = f"https://127.0.0.1:{bench.port}"
        async with httpx.AsyncClient(base_url=url, verify=False, timeout=WAIT_S) as http:
            got = await http.post("/generate", json={}, headers={"authorization": "Bearer k"})
        assert got.content == b"inside"
        assert bench.replicas[0].seen[0].headers["authorization"] == "Bearer k"


def test_addresses_and_pairs_are_checked():
    with pytest.raises(ConfigError, match="--worker-urls"):
        settle(RouterConfig())
    with pytest.raises(ConfigError, match="--ssl-keyfile"):
        config_of(["http://a:1"], net={"ssl_keyfile": "k"})


async def test_a_bad_address_is_named():
    config = config_of(["ftp://a"])
    async with make_upstream(config) as upstream:
        with pytest.raises(ConfigError, match="ftp://a"):
            Router(config, upstream)
