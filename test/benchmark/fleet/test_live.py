"""Sessions played against a server: what is sent, and what is added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from benchmark.fleet.clients import Clients, Pace
from benchmark.fleet.live import FIRST_ID, Heard, Player, drawn_ids

from treadle.bench.traces import Speller, read_agents

VOCAB = 500
REQUESTS = [
    [0.0, 100, 10, -1, 0, "s", ""],
    [0.1, 200, 5, 0, 100, "s", ""],
    [0.2, 150, 5, 1, 60, "s", ""],
]


class Server:
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def generate(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.asked.append((request.headers["x-session-id"], body))
        count = body["sampling_params"]["max_new_tokens"]
        made = [7] * count
        meta = {"prompt_tokens": len(body["input_ids"]), "completion_tokens": count}
        meta |= {"cached_tokens": 40, "replayed_tokens": 8}
        parts = [{"output_ids": made[:i], "meta_info": meta} for i in (1, count)]
        text = b"".join(b"data: " + orjson.dumps(part) + b"\n\n" for part in parts)
        headers = {"x-router-decision": "pinned", "x-router-replica": "http://r:1"}
        return web.Response(body=text + b"data: [DONE]\n\n", headers=headers)


async def play(folder: Path, count: int) -> tuple[Server, Heard]:
    path = folder / "agents.jsonl"
    rows = [{"id": name, "block_tokens": 1, "requests": REQUESTS} for name in "ab"]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    clients = Clients(read_agents(path, 1.0), count, Pace(0.1, 0.0, 0))
    server, app = Server(), web.Application()
    app.router.add_post("/generate", server.generate)
    async with TestServer(app) as running:
        url = str(running.make_url("")).rstrip("/")
        return server, await Player(clients, url, VOCAB).run()


async def test_a_later_prompt_holds_what_was_generated(tmp_path: Path):
    server, _ = await play(tmp_path, 1)
    first, second, third = (body["input_ids"] for _, body in server.asked)
    assert [len(first), len(second), len(third)] == [100, 200, 150]
    assert second[:100] == first and second[100:110] == [7] * 10
    assert third[:60] == first[:60] and third[60] != first[60]
    assert all(FIRST_ID <= token < VOCAB for token in first)


async def test_sessions_are_told_apart(tmp_path: Path):
    server, heard = await play(tmp_path, 4)
    names = {name for name, _ in server.asked}
    assert names == {"a/0", "a/1", "b/0", "b/1"}
    starts = {tuple(body["input_ids"][:8]) for _, body in server.asked}
    assert len(starts) == 4
    assert heard.requests == 12 and heard.decisions == {"pinned": 12}
    assert heard.hit_rate == pytest.approx(12 * 40 / (4 * 450))
    assert heard.costs.row_s > 0


def test_drawn_ids_follow_the_spelled_ones(tmp_path: Path):
    path = tmp_path / "agents.jsonl"
    path.write_bytes(orjson.dumps({"id": "a", "block_tokens": 1, "requests": REQUESTS}))
    first, second, _ = read_agents(path, 1.0)[0].turns
    ids = [drawn_ids(Speller().ids(turn, 3), VOCAB) for turn in (first, second)]
    assert ids[0][:110] == ids[1][:110]
    assert len(set(ids[1])) > 100
