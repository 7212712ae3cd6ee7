"""Fifty streaming clients that hang up at random: nothing leaks.

`--soak-seconds 120` is the acceptance run; the default is short.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

import httpx
import psutil
import pytest

from test.e2e.conftest import StartServer
from test.e2e.prometheus import total
from test.e2e.server import Server
from test.e2e.streams import aiter_lines

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS = 50
RSS_GROWTH = 1.02


async def client(http: httpx.AsyncClient, rng: random.Random, until: float) -> int:
    """Requests until the time is over; about half are cut off in mid-stream. Finished ones."""
    finished = 0
    while time.monotonic() < until:
        body = {
            "model": "m",
            "prompt": "Once " * rng.randint(1, 60) + str(rng.random()),
            "max_tokens": rng.randint(1, 40),
            "ignore_eos": True,
            "stream": True,
            "temperature": rng.choice([0, 1]),
        }
        hang_up_after = rng.choice([None, 0.0, rng.random(), rng.random() * 4])
        try:
            async with asyncio.timeout(hang_up_after):
                async with http.stream("POST", "/v1/completions", json=body) as response:
                    lines = [line async for line in aiter_lines(response) if line]
            assert lines[-1] == "data: [DONE]", lines[-1]
            finished += 1
        except TimeoutError:
            pass  # leaving the stream closes the connection
    return finished


async def load(server: Server, seconds: float, seed: int) -> int:
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        jobs = [client(http, random.Random(seed + i), until) for i in range(CLIENTS)]
        return sum(await asyncio.gather(*jobs))


async def idle_state(server: Server) -> dict[str, float]:
    """Numbers once nothing runs or waits and the prefix cache is empty."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        assert (await http.post("/flush_cache", params={"timeout": 60})).status_code == 200
        metrics = (await http.get("/metrics")).text
    names = ["treadle:pages|free", "treadle:window_slots|free", "sglang:num_running_reqs"]
    names += ["sglang:num_queue_reqs", "treadle:cache_invariant_failures_total"]
    state = {name: total(metrics, name) for name in names}
    return state | {"open_files": float(sum(map(open_files, server.children)))}


async def evicted_pages(server: Server) -> float:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        return total((await http.get("/metrics")).text, "treadle:evicted_pages_total")


def open_files(process: psutil.Process) -> int:
    """All but TCP sockets: the server closes those a moment after its client."""
    tcp = {str(c.fd) for c in process.net_connections("tcp")}
    return len(set(os.listdir(f"/proc/{process.pid}/fd")) - tcp)


def resident_bytes(server: Server) -> dict[str, int]:
    return {p.cmdline()[0]: p.memory_info().rss for p in server.children}


def established(server: Server) -> int:
    sockets = [c for p in server.children for c in p.net_connections("tcp")]
    return sum(c.status == psutil.CONN_ESTABLISHED for c in sockets)


async def test_random_disconnects_leak_nothing(serve: StartServer, pytestconfig: pytest.Config):
    seconds = pytestconfig.getoption("--soak-seconds")
    # few pages: they are not resident until written, and the first load has to write them all
    server = serve("demo:smollm2-135m", "--kv-cache-memory", "64M")
    while True:  # buffers grow to their size, and each page has been written
        await load(server, max(3.0, seconds / 3), seed=1)
        if await evicted_pages(server) > 0:
            break
    before, rss_before = await idle_state(server), resident_bytes(server)
    finished = await load(server, seconds, seed=1000)
    after, rss_after = await idle_state(server), resident_bytes(server)
    assert finished > 0
    assert after["sglang:num_running_reqs"] == after["sglang:num_queue_reqs"] == 0
    assert after["treadle:cache_invariant_failures_total"] == 0
    assert after["treadle:pages|free"] == before["treadle:pages|free"] > 0
    assert after["treadle:window_slots|free"] == before["treadle:window_slots|free"] > 0
    assert established(server) == 0
    assert after["open_files"] == before["open_files"]
    for name, size in rss_after.items():
        assert size <= rss_before[name] * RSS_GROWTH + (4 << 20), (name, rss_before[name], size)
