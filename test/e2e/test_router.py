"""The router before real replicas: deaths, drains, aborts, one command for all."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from test.e2e.fleet import BODY, Fleet, Turn
from test.e2e.server import WAIT_S, Server
from test.tiny import tiny_gemma3

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STREAMS = 50


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("fleet"), 3)
    yield made
    made.close()


def client(fleet: Fleet) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=fleet.url, timeout=WAIT_S, limits=limits)


async def turns(http: httpx.AsyncClient, names: list[str], **changes: object) -> list[Turn]:
    runs = (Turn().run(http, name, **changes) for name in names)
    return list(await asyncio.gather(*runs))


def few_at_a_time(names: list[str]) -> Iterator[list[str]]:
    """So load is no reason to move."""
    for begin in range(0, len(names), 10):
        yield names[begin : begin + 10]


async def test_a_session_finds_its_prefix_again(fleet: Fleet):  # A7
    prompt = "the thread and the loom " * 8
    async with client(fleet) as http:
        cached = []
        for _ in range(3):
            body = {"prompt": prompt, "max_tokens": 2}
            got = await http.post("/v1/completions", json=body, headers={"x-session-id": "p"})
            cached.append(got.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached[0] == 0 and cached[1] > 0
        assert got.headers["x-router-decision"] == "pinned"


async def test_an_abort_by_the_id_in_a_header_ends_a_request(fleet: Fleet):  # A22, A23
    held = [fleet.hold(url) for url in fleet.servers]  # so that it does not end by itself
    try:
        async with client(fleet) as http, asyncio.timeout(WAIT_S):
            headers = {"x-request-id": "to-be-ended"}
            body = {**BODY, "max_tokens": 400, "stream": False}
            task = asyncio.create_task(http.post("/v1/completions", json=body, headers=headers))
            count = 0
            while not count:
                got = await http.post("/abort_request", json={"rid": "to-be-ended"})
                count = got.json()["num_aborted"]
            for worker in held:
                worker.resume()
            answer = await task
        assert count == 1
        assert answer.headers["x-rid"] == "to-be-ended"
        assert answer.json()["choices"][0]["finish_reason"] == "abort"
    finally:
        for worker in held:
            worker.resume()


async def test_a_client_that_leaves_frees_the_replica(fleet: Fleet):  # A20
    held = [fleet.hold(url) for url in fleet.servers]
    try:
        async with client(fleet) as http:
            task = asyncio.create_task(Turn().run(http, "gone", max_tokens=400))
            while not any(row["load"] for row in fleet.workers().values()):
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for worker in held:
            worker.resume()
        async with asyncio.timeout(WAIT_S):
            while any(row["load"] for row in fleet.workers().values()):
                await asyncio.sleep(0.02)
            while any(running(url) for url in fleet.servers):
                await asyncio.sleep(0.05)
    finally:
        for worker in held:
            worker.resume()


def running(url: str) -> int:
    (load,) = httpx.get(f"{url}/v1/loads", timeout=WAIT_S).json()["loads"]
    return int(load["num_running_reqs"] + load["num_waiting_reqs"])


async def test_a_killed_replica_breaks_only_its_streams_and_moves_only_its_sessions(
    fleet: Fleet,
):  # test 9; A12, A14, A16, A18, A21
    names = [f"s{i}" for i in range(STREAMS)]
    async with client(fleet) as http:
        streams = [Turn() for _ in names]
        tasks = [
            asyncio.create_task(turn.run(http, name, max_tokens=400))
            for turn, name in zip(streams, names, strict=True)
        ]
        await asyncio.gather(*(turn.has_begun.wait() for turn in streams))
        held = [fleet.hold(url) for url in fleet.servers]
        homes = {name: turn.replica for name, turn in zip(names, streams, strict=True)}
        victim = max(fleet.servers, key=list(homes.values()).count)
        try:
            fleet.kill(victim)
        finally:
            for worker in held:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.resume()
        await asyncio.gather(*tasks)
        broken = [turn for turn in streams if not turn.is_whole]
        assert broken and {turn.replica for turn in broken} == {victim}
        assert all(turn.has_error and not turn.is_done and not turn.is_cut for turn in broken)
        moved: dict[str, Turn] = {}
        for some in few_at_a_time(names):
            moved |= zip(some, await turns(http, some), strict=True)
        for name, turn in moved.items():
            assert turn.is_whole
            assert (turn.replica != homes[name]) == (homes[name] == victim)
            assert turn.decision == ("failover" if homes[name] == victim else "pinned")
        await asyncio.to_thread(fleet.restart, victim)
        await asyncio.to_thread(fleet.wait_serving, victim)
        for some in few_at_a_time(names):
            for name, turn in zip(some, await turns(http, some), strict=True):
                assert turn.replica == moved[name].replica and turn.decision == "pinned"


async def test_a_drain_lets_requests_end_and_moves_sessions(fleet: Fleet):  # A13
    names = [f"d{i}" for i in range(12)]
    async with client(fleet) as http:
        streams = [Turn() for _ in names]
        tasks = [
            asyncio.create_task(turn.run(http, name, max_tokens=300))
            for turn, name in zip(streams, names, strict=True)
        ]
        await asyncio.gather(*(turn.has_begun.wait() for turn in streams))
        victim = streams[0].replica
        assert (await http.delete(f"/workers/{victim}")).status_code == 202
        again = await turns(http, names, max_tokens=5)
        await asyncio.gather(*tasks)
        assert all(turn.is_whole for turn in (*streams, *again))
        assert victim not in {turn.replica for turn in again}
        async with asyncio.timeout(WAIT_S):
            while victim in fleet.workers():
                await asyncio.sleep(0.05)
        assert (await http.post("/workers", json={"url": victim})).status_code == 202


def test_one_command_serves_several_replicas(tmp_path: Path):
    model = str(tiny_gemma3(tmp_path / "model"))
    server = Server("--model-path", model, "--load-format", "dummy", "--port", "0",
                    "--dp-size", "2", "--kv-cache-memory", "16M", "--skip-server-warmup",
                    "--api-key", "k",
                    "--router-policy", "round_robin")  # fmt: skip
    try:
        server.wait_until_listening(r"\[router\].* listening host=\S+ port=(\d+)")
        headers = {"authorization": "Bearer k"}
        wait_workers(server.url, headers, 2)
        answers = [ask(server.url, headers) for _ in range(4)]
        assert len({got.headers["x-router-replica"] for got in answers}) == 2
        assert ask(server.url, {}).status_code == 401
        family = psutil.Process(server.process.pid).children(recursive=True)
        (first, *_) = [p for p in family if "treadle.replica_child" in p.cmdline()]
        first.kill()
        assert {ask(server.url, headers).status_code for _ in range(6)} == {200}
        server._find("replica_serves")  # once more
        wait_workers(server.url, headers, 2)
        family = psutil.Process(server.process.pid).children(recursive=True)
        server.process.send_signal(signal.SIGTERM)
        assert server.finish() == 0
        _, alive = psutil.wait_procs(family, timeout=WAIT_S)
        assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    finally:
        server.close()


def ask(url: str, headers: dict[str, str]) -> httpx.Response:
    body = {**BODY, "stream": False}
    return httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=WAIT_S)


def wait_workers(url: str, headers: dict[str, str], count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = httpx.get(f"{url}/workers", headers=headers, timeout=WAIT_S).json()["workers"]
        if sum(row["status"] == "ready" for row in rows) == count:
            return
        assert time.monotonic() < deadline, rows
        time.sleep(0.1)
