"""What a request and an event cost in the router, against the same load sent to a replica directly.

    python -m benchmark.serving.router_overhead --seconds 10 --out router_overhead

One router process on one core before fake replicas that answer at once (`fake_replica.py`). Four
loads, each through the router and directly, in turns:

    ttft      `--rate` streaming requests a second, evenly spaced; time to the first event
    plain     1 KiB answers over `--connections` connections, as fast as they come
    events    `--streams` endless streams; events that reach the client, each a chunk of its own
    bundles   the same with 8 events a chunk, as when a server's events share its writes

On a machine that does other work too, rates per second of the router's CPU time say more than those
per second of wall time; both are given.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop
from benchmark.environment import ROOT, Environment, write_result

from treadle.bench.spread import Spread

PACKAGES = ("uvicorn", "uvloop", "httptools", "starlette", "orjson")
PROMPT = '"prompt": "' + "word " * 180 + '"'  # about 1 KB
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """`per_cpu_s`: of the router's CPU time; 0 for direct runs."""

    values: dict[str, float]
    per_s: float
    per_cpu_s: float


class Processes:
    """`count` fake replicas and a router, which has a core of its own."""

    def __init__(self, count: int, core: int, policy: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        files = [Path(self._folder.name) / f"port{i}" for i in range(count)]
        self._children = [start("benchmark.serving.fake_replica", str(file)) for file in files]
        self.replicas = [wait_port(file) for file in files]
        urls = [f"http://127.0.0.1:{port}" for port in self.replicas]
        router = start(
            "treadle.launch_router", "--worker-urls", *urls, "--port", "0", "--host", "127.0.0.1",
            "--prometheus-port", "-1", "--policy", policy,
        )  # fmt: skip
        self._children.append(router)
        self.router = port_in_log(router)
        self._process = psutil.Process(router.pid)
        self._process.cpu_affinity([core])

    @property
    def cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()
            if child.stderr:
                child.stderr.close()
        self._folder.cleanup()


def start(*words: str) -> subprocess.Popen[str]:
    path = f"{ROOT / 'python'}:{ROOT}"
    env = {**os.environ, "PYTHONPATH": path}
    log = subprocess.PIPE if words[0].startswith("treadle") else None
    return subprocess.Popen([sys.executable, "-m", *words], stderr=log, text=True, env=env)


def wait_port(file: Path) -> int:
    deadline = time.monotonic() + WAIT_S
    while not (file.exists() and file.read_text()):
        if time.monotonic() > deadline:
            raise RuntimeError("a fake replica did not start")
        time.sleep(0.05)
    return int(file.read_text())


def port_in_log(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"listening host=\S+ port=(\d+)", line):
            return int(found[1])
    raise RuntimeError("the router did not start")


class Connection:
    """Keep-alive HTTP/1.1 with just what the fake replica and the router answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    def send(self, session: str, extra: str) -> None:
        body = f"{{{PROMPT}{extra}}}"
        self._writer.write(
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-session-id: {session}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )

    async def head(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        return head

    async def plain(self) -> None:
        found = re.search(rb"content-length: *(\d+)", await self.head(), re.I)
        assert found is not None
        await self._reader.readexactly(int(found[1]))

    async def first_event(self) -> None:
        await self.head()
        await self._reader.readuntil(b"\n\n")

    async def rest(self) -> None:
        await self._reader.readuntil(b"\r\n0\r\n\r\n")

    async def read(self) -> bytes:
        return await self._reader.read(1 << 17)

    def close(self) -> None:
        self._writer.transport.abort()


async def ttft(port: int, args: argparse.Namespace) -> Run:
    """Evenly spaced arrivals over a pool of idle connections."""
    idle = [await Connection.open(port) for _ in range(32)]
    times: list[float] = []

    async def one(number: int) -> None:
        connection = idle.pop() if idle else await Connection.open(port)
        began = time.perf_counter()
        connection.send(f"s{number % 500}", ', "stream": true, "max_tokens": 4')
        await connection.first_event()
        times.append(time.perf_counter() - began)
        await connection.rest()
        idle.append(connection)

    began, tasks = time.perf_counter(), []
    for number in range(int(args.rate * args.seconds)):
        await asyncio.sleep(max(0.0, began + number / args.rate - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.close()
    marks = statistics.quantiles([1000 * t for t in times], n=100)
    return Run({"ttft_p50_ms": marks[49], "ttft_p99_ms": marks[98]}, len(times) / args.seconds, 0.0)


async def plain(port: int, args: argparse.Namespace) -> Run:
    until = time.perf_counter() + args.seconds
    count = 0

    async def loop(number: int) -> None:
        nonlocal count
        connection = await Connection.open(port)
        while time.perf_counter() < until:
            connection.send(f"s{number}", "")
            await connection.plain()
            count += 1
        connection.close()

    await asyncio.gather(*(loop(i) for i in range(args.connections)))
    return Run({}, count / args.seconds, 0.0)


async def events(port: int, args: argparse.Namespace) -> Run:
    return await _events(port, args, 1)


async def bundles(port: int, args: argparse.Namespace) -> Run:
    return await _events(port, args, 8)


async def _events(port: int, args: argparse.Namespace, per_chunk: int) -> Run:
    extra = f', "stream": true, "max_tokens": 100000000, "per_chunk": {per_chunk}'
    until = time.perf_counter() + args.seconds
    count = 0

    async def loop(number: int) -> None:
        nonlocal count
        connection = await Connection.open(port)
        connection.send(f"s{number}", extra)
        await connection.first_event()
        while time.perf_counter() < until:
            count += (await connection.read()).count(b"data: ")
        connection.close()

    await asyncio.gather(*(loop(i) for i in range(args.streams)))
    return Run({}, count / args.seconds, 0.0)


Load = Callable[[int, argparse.Namespace], Awaitable[Run]]
LOADS: dict[str, Load] = {"ttft": ttft, "plain": plain, "events": events, "bundles": bundles}


async def through_router(load: Load, processes: Processes, args: argparse.Namespace) -> Run:
    before = processes.cpu_s
    run = await load(processes.router, args)
    spent = processes.cpu_s - before
    return Run(run.values, run.per_s, run.per_s * args.seconds / spent)


async def measure(processes: Processes, args: argparse.Namespace) -> dict[str, dict[str, Spread]]:
    """By load: spreads over rounds of what was measured, direct and through the router."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in args.loads}
    for _ in range(args.rounds):
        for name in args.loads:
            direct = await LOADS[name](processes.replicas[0], args)
            router = await through_router(LOADS[name], processes, args)
            values = {"direct_per_s": direct.per_s, "router_per_s": router.per_s}
            values["router_per_cpu_s"] = router.per_cpu_s
            for key, value in router.values.items():
                values |= {f"direct_{key}": direct.values[key], f"router_{key}": value}
                values[f"added_{key}"] = value - direct.values[key]
            for key, value in values.items():
                found[name].setdefault(key, []).append(value)
            print(name, {key: round(value, 3) for key, value in values.items()}, flush=True)
    return {
        name: {key: Spread.of(values) for key, values in rows.items()}
        for name, rows in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--policy", default="session")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second of ttft")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", nargs="*", default=list(LOADS), choices=list(LOADS))
    parser.add_argument("--core", type=int, default=-1, help="of the router; -1: the last")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    args = parser.parse_args()
    environment = Environment.read(PACKAGES)
    core = sorted(os.sched_getaffinity(0))[args.core]
    processes = Processes(args.replicas, core, args.policy)
    try:
        results = uvloop.run(measure(processes, args))
    finally:
        processes.close()
    if args.out:
        content = {"environment": environment, "settings": vars(args), "loads": results}
        write_result(args.out, content)


if __name__ == "__main__":
    main()
