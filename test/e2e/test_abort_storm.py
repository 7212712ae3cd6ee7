"""Storms of requests that are aborted at random moments, with steps overlapped: nothing leaks.

`--storm-requests 500` is the acceptance run; the default is small. The model is tiny and random,
so a storm passes through every state of a request in seconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import pytest

from test.e2e.conftest import StartServer
from test.e2e.prometheus import scrape_until
from test.e2e.server import Server
from test.e2e.streams import aiter_lines
from test.tiny import Form, tiny_gemma3
from treadle.srt.grammar.store import KEPT
from treadle.srt.procs.step_loop import IDLE_CHECK_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

CROWD, FEW = 64, 6  # requests at once: four times as many as run, and so few that all run
STORMS, FEWER_STORMS = 3, 2  # at full size, and by default
RSS_GROWTH = 1.02  # of the server
FREE_LISTS = 4 << 20  # of one process besides: what its allocator keeps, flat from storm 5 on
IDLE_S = IDLE_CHECK_S + 2.0  # by then an idle server has given freed memory back
FULL = 500
HI = [{"role": "user", "content": "hi"}]

IDLE = {
    "sglang:num_running_reqs": 0.0,
    "sglang:num_queue_reqs": 0.0,
    "sglang:num_grammar_queue_reqs": 0.0,
    "treadle:ended_unconfirmed": 0.0,
    "treadle:cache_invariant_failures_total": 0.0,
}
STOCK = ("treadle:pages|free", "treadle:window_slots|free")
ENDS = ("sglang:num_aborted_requests_total", "sglang:e2e_request_latency_seconds_count")
REQUESTS = "sglang:num_requests_total"
PHASES = tuple(
    f'treadle:aborts_total|phase="{phase}"' for phase in ("grammar", "queued", "prompt", "decode")
)


@dataclass
class Storm:
    """One storm against a server. `ends` counts what clients saw as the end of their request."""

    http: httpx.AsyncClient
    name: str
    rng: random.Random
    ends: Counter[str] = field(default_factory=Counter)

    async def run(self, num_requests: int) -> None:
        async def one(rid: str) -> None:
            self.ends[await self._request(rid)] += 1

        await self._each(one, num_requests // 2, CROWD)
        await self._each(one, num_requests - num_requests // 2, FEW)

    async def fill(self) -> None:
        """As many grammars as the server keeps, each used for a while: they are no leak."""

        async def one(rid: str) -> None:
            body: dict[str, object] = {"model": "m", "max_tokens": 100, "stream": True}
            await self._read(body | self._grammar(rid), 0)

        await self._each(one, KEPT, CROWD)

    async def _each(self, one: Callable[[str], Awaitable[None]], count: int, at_once: int) -> None:
        gate = asyncio.Semaphore(at_once)

        async def gated(rid: str) -> None:
            async with gate:
                await one(rid)

        async with asyncio.TaskGroup() as group:
            for index in range(count):
                group.create_task(gated(f"{self.name}-{at_once}-{index}"))

    def _grammar(self, rid: str) -> dict[str, object]:
        """Fields that ask for a grammar that nobody has compiled before."""
        names = {f"{rid}{i}": {"type": "string"} for i in range(8)}
        schema = {"type": "object", "properties": names, "required": list(names)}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        return {"messages": HI, "tools": [tool], "tool_choice": "required"}

    def _body(self, rid: str) -> dict[str, object]:
        rng = self.rng
        body: dict[str, object] = {
            "model": "m",
            "rid": rid,
            "max_tokens": rng.choice([1, 16, 100, 200]),
            "ignore_eos": True,
            "temperature": rng.choice([0, 1]),
            "stream": rng.random() < 0.8,
        }
        if rng.random() < 0.3:
            return body | self._grammar(rid)
        prompt = rng.choices(range(5, 320), k=rng.choice([3, 40, 300, 1000]))
        return body | {"prompt": prompt}

    async def _request(self, rid: str) -> str:
        """Sends one and ends it: by hanging up or by name, after a time or a number of events."""
        body, way = self._body(rid), self.rng.choice(["hang up", "abort", "abort", "wait"])
        delay = self.rng.choice([0.0, 0.01, 0.03, 0.1, self.rng.random()])
        after = self.rng.choice([0, 0, 1, 2, int(str(body["max_tokens"]))])
        aborting = asyncio.create_task(self._abort(rid, delay)) if way == "abort" else None
        try:
            async with asyncio.timeout(delay if way == "hang up" and after == 0 else None):
                return await self._read(body, after if way == "hang up" else 0)
        except TimeoutError:
            return "hung up"
        finally:
            if aborting is not None:
                await aborting

    async def _abort(self, rid: str, delay: float) -> None:
        await asyncio.sleep(delay)
        assert (await self.http.post("/abort_request", json={"rid": rid})).status_code == 200

    async def _read(self, body: dict[str, object], leave_after: int) -> str:
        """The finish reason, of which there must be one and nothing after it."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        if not body["stream"]:
            answer = await self.http.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["choices"][0]["finish_reason"])
        reasons: list[str] = []
        num_events = 0
        async with self.http.stream("POST", path, json=body) as response:
            assert response.status_code == 200
            async for line in aiter_lines(response):
                if line == "data: [DONE]":
                    (reason,) = reasons
                    return reason
                if line:
                    assert not reasons, f"after the end: {line}"
                    num_events += 1
                    reason = json.loads(line.removeprefix("data: "))["choices"][0]["finish_reason"]
                    reasons += [reason] if reason else []
                if num_events == leave_after > 0:
                    return "hung up"
        raise AssertionError("the stream had no end")


async def settled(http: httpx.AsyncClient) -> dict[str, float]:
    """Numbers once nothing runs, waits or is unconfirmed and the prefix cache is empty."""
    await scrape_until(http, lambda found: found == IDLE, *IDLE)
    assert (await http.post("/flush_cache", params={"timeout": 60})).status_code == 200
    return await scrape_until(http, lambda _: True, *STOCK, *ENDS, *PHASES, REQUESTS)


async def resident_bytes(server: Server) -> dict[str, int]:
    """The least of an idle while, in which nobody asks the server anything."""
    found: list[dict[str, int]] = []
    until = time.monotonic() + IDLE_S
    while time.monotonic() < until:
        found.append({p.cmdline()[0]: p.memory_info().rss for p in server.children})
        await asyncio.sleep(0.1)
    return {name: min(sizes[name] for sizes in found) for name in found[0]}


async def test_storms_of_aborts_leak_nothing_and_end_each_request_once(
    serve: StartServer, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
):
    num_requests = pytestconfig.getoption("--storm-requests")
    is_full = num_requests >= FULL
    form = Form(changes={"max_position_embeddings": 2048})  # tools are long in these tokens
    model = str(tiny_gemma3(tmp_path_factory.mktemp("model"), form))
    server = serve(
        model, "--kv-cache-memory", "16M", "--chunked-prefill-size", "64", "--page-size", "4",
        "--check-cache-invariants",
    )  # fmt: skip
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        if is_full:
            await Storm(http, "fill", random.Random(STORMS)).fill()
        fresh = await settled(http)
        resident: list[dict[str, int]] = []
        for number in range(STORMS if is_full else FEWER_STORMS):
            storm = Storm(http, f"storm{number}", random.Random(number))
            before = await settled(http)
            await storm.run(num_requests)
            after = await settled(http)
            # one end each in the server too, also where no client was left to see it
            ended = sum(after[name] - before[name] for name in ENDS)
            assert ended == after[REQUESTS] - before[REQUESTS] > num_requests / 2
            assert {name: after[name] for name in STOCK} == {name: fresh[name] for name in STOCK}
            assert storm.ends.keys() <= {"hung up", "abort", "length", "stop"}
            assert min(storm.ends[end] for end in ("hung up", "abort", "length")) > 0
            if is_full:
                resident.append(await resident_bytes(server))
    assert fresh["treadle:pages|free"] > 0
    # a small storm may miss the short ones
    met = [name for name in PHASES if after[name] > 0]
    assert len(met) == len(PHASES) if is_full else len(met) > 1, after
    if is_full:
        check_growth(resident[0], resident[-1])


def check_growth(first: dict[str, int], last: dict[str, int]) -> None:
    """By process, in bytes."""
    assert sum(last.values()) <= sum(first.values()) * RSS_GROWTH, (first, last)
    for name, size in last.items():
        assert size <= first[name] * RSS_GROWTH + FREE_LISTS, (name, first, last)
