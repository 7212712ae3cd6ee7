"""The command against fake servers: what is sent, in which order, and what is written."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from test.treadle.bench import agent_trace
from test.treadle.bench.fake_server import REPLY, FakeServer
from treadle.bench import agent
from treadle.bench.__main__ import main

SMALL = "--length-scale 1/64 --think none --concurrency 1 2 --sessions 2 --disable-tqdm"
SHARED = (0, 11, 4)  # of each turn: 10 of prompt and 1 of 2 of output; a part of the prompt


async def run(folder: Path, flags: str, *servers: FakeServer) -> int:
    """In a thread: the command has a loop of its own, the servers run on this one."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(server.running()) for server in servers]
        names = [f"{server.owner}={url}" for server, url in zip(servers, urls, strict=True)]
        argv = ["--server", *names, "--traces", str(agent_trace.write(folder))]
        return await asyncio.to_thread(main, ["agent", *argv, *flags.split()])


def generated(server: FakeServer) -> list:
    """Prompts, without the warm-up."""
    return [body.get("input_ids") or body.get("prompt") for body in server.bodies[1:]]


async def test_both_servers_get_the_same_prompts_and_tell_comparable_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ours, peer = FakeServer(replayed=3), FakeServer("llamacpp")
    flags = f"{SMALL} --out try --results {tmp_path} --no-plots --run-id fixed"
    assert await run(tmp_path, flags, ours, peer) == 0
    assert sorted(generated(ours)) == sorted(generated(peer))
    result = orjson.loads((tmp_path / "try.json").read_bytes())
    assert [(p["server"], p["concurrency"]) for p in result["points"]] == [
        ("sglang", 1), ("llamacpp", 1), ("sglang", 2), ("llamacpp", 2)
    ]  # fmt: skip
    first, second = (p["tokens"] for p in result["points"][:2])
    prompt, best = 2 * (10 + 20 + 25), 2 * sum(SHARED)
    assert (first["prompt"], first["best"]) == (prompt, best) == (second["prompt"], second["best"])
    bos = 1  # which the second session has in common with the first
    assert second["rows"] == prompt - best - bos and second["reprocessed"] == -bos
    replayed = 3 * 5  # at each of five hits
    assert first["replayed"] == replayed and first["rows"] == second["rows"] + replayed
    assert first["reprocessed"] == replayed - bos
    assert result["is_valid"] and result["scales"] == {"length": 1 / 64, "time": 1, "think": "none"}
    assert {line["metric"] for line in result["summary"]} >= {"rows", "reprocessed_rows"}
    assert "| 2 | llamacpp |" in capsys.readouterr().out


async def test_every_turn_has_a_line_beside_the_plots(tmp_path: Path):
    server = FakeServer()
    await run(tmp_path, f"{SMALL} --out try --results {tmp_path} --run-id r", server)
    assert (tmp_path / "try.svg").exists() and (tmp_path / "try.png").exists()
    lines = [orjson.loads(x) for x in (tmp_path / "try_turns.jsonl").read_bytes().splitlines()]
    assert len(lines) == 2 * 2 * 3
    names = {(line["session"], line["turn"]) for line in lines}
    assert len(names) == len(lines) and all("/r/" in session for session, _ in names)
    assert {"ttft_s", "mean_itl_s", "cached", "replayed", "reprocessed"} <= lines[0].keys()
    sent = [headers["X-Session-ID"] for _, headers, _ in server.asked[1:]]
    assert sorted(sent) == sorted(line["session"] for line in lines)


async def test_prompts_go_on_from_what_the_server_said(tmp_path: Path):
    server = FakeServer()
    await run(tmp_path, f"{SMALL} --concurrency 1 --sessions 1", server)
    first, second, third = generated(server)
    assert second[:12] == [*first, REPLY, REPLY] and len(second) == 20
    assert third[:4] == second[:4] and third[4:20] != second[4:]


async def test_recorded_replies_are_not_the_servers(tmp_path: Path):
    server = FakeServer()
    await run(tmp_path, f"{SMALL} --concurrency 1 --sessions 1 --replies recorded", server)
    first, second, _ = generated(server)
    assert second[:10] == first and second[10:12] != [REPLY, REPLY]


async def test_a_server_without_ids_is_asked_by_messages(tmp_path: Path):
    server = FakeServer("somebody")
    assert await run(tmp_path, f"{SMALL} --concurrency 1 --sessions 1", server) == 0
    paths = {path for path, _, _ in server.asked}
    assert paths == {"/v1/chat/completions"}
    roles = [[m["role"] for m in body["messages"]] for body in server.bodies[1:]]
    assert roles == [["user"], ["user", "assistant", "user"], ["user"]]


async def test_failed_turns_make_a_point_invalid_and_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    server = FakeServer(fails_after=3)
    flags = f"{SMALL} --out try --results {tmp_path} --no-plots"
    assert await run(tmp_path, flags, server) == 1
    result = orjson.loads((tmp_path / "try.json").read_bytes())
    assert not result["is_valid"] and result["summary"] == []
    assert "turns failed (not an answer: status 503" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--sessions 0", "--seconds"),
        ("--context-len 12", "no session of the trace fits into 12"),
        ("--length-scale 1/50", "whole tokens"),
    ],
)
async def test_what_cannot_be_run_is_refused(
    tmp_path: Path, flags: str, said: str, capsys: pytest.CaptureFixture[str]
):
    assert await run(tmp_path, f"{SMALL} {flags}", FakeServer()) == 2
    assert said in capsys.readouterr().err


async def test_plots_without_matplotlib_are_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent, "find_spec", lambda name: None)
    server = FakeServer()
    assert await run(tmp_path, f"{SMALL} --out try --results {tmp_path}", server) == 2
    assert "--no-plots" in capsys.readouterr().err and not server.asked
