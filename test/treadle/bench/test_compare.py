"""Servers in turns on the same load: who is asked what, and which ratios come out."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from test.treadle.bench import agent_trace
from test.treadle.bench.fake_server import FakeServer
from treadle.bench import compare
from treadle.bench.__main__ import main

SMALL = "--num-prompts 3 --random-input-len 8 --random-output-len 4 --disable-tqdm --rounds 2"


async def run(flags: str, ours: FakeServer, *theirs: FakeServer) -> int:
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(one.running()) for one in (ours, *theirs)]
        texts = [f"peer{n}={url}" for n, url in enumerate(urls[1:])]
        argv = ["--ours", f"ours={urls[0]}", "--theirs", *texts]
        return await asyncio.to_thread(compare.main, [*argv, *flags.split()])


def prompts(server: FakeServer) -> list[str]:
    return [body.get("text") or body["prompt"] for body in server.bodies]


async def test_servers_take_turns_on_the_same_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ours, peer = FakeServer(), FakeServer("llamacpp")
    assert await run(f"{SMALL} --out pair --results {tmp_path}", ours, peer) == 0
    assert sorted(prompts(ours)) == sorted(prompts(peer))  # in a round all are asked at once
    first, second = prompts(ours)[:4], prompts(ours)[4:]  # with a warm-up each
    assert not set(first) & set(second)
    result = orjson.loads((tmp_path / "pair.json").read_bytes())
    assert [(x["server"], x["round"]) for x in result["runs"]] == [
        ("ours", 0), ("peer0", 0), ("ours", 1), ("peer0", 1)
    ]  # fmt: skip
    assert [x["backend"] for x in result["runs"]] == ["sglang", "llama.cpp"] * 2
    ratios = {line["metric"]: line["ratio"] for line in result["summary"]}
    assert set(ratios) == set(compare.METRICS) and ratios["median_ttft_ms"]["count"] == 2
    assert "| metric | ours | peer0 | ours / best peer |" in capsys.readouterr().out


async def test_rounds_with_failures_are_not_compared(capsys: pytest.CaptureFixture[str]):
    assert await run(SMALL, FakeServer(), FakeServer(fails_after=5)) == 1
    rows = [x for x in capsys.readouterr().out.splitlines() if "median_ttft_ms" in x]
    assert len(rows) == 1 and rows[0].count("(") == 1  # theirs and the ratio are of one round


async def test_agent_sessions_are_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = "--workload agent --length-scale 1/64 --think none --concurrency 1 --sessions 1"
    flags += f" --rounds 2 --disable-tqdm --traces {agent_trace.write(tmp_path)}"
    ours, peers = FakeServer(), [FakeServer("llamacpp"), FakeServer()]
    assert await run(flags, ours, *peers) == 0
    table = capsys.readouterr().out
    assert "| reprocessed_rows | " in table and "| peer0 | peer1 | ours / best peer |" in table
    assert len(ours.asked) == len(peers[0].asked) == 1 + 2 * 3


@pytest.mark.parametrize(
    "flags",
    ["--base-url http://a", "--traces a", "--workload agent --num-prompts 3", "--workload other"],
)
def test_flags_of_another_workload_or_target_are_refused(flags: str):
    with pytest.raises(SystemExit) as end:
        compare.parse(["--ours", "http://a", "--theirs", "http://b", *flags.split()])
    assert end.value.code == 2


def test_what_cannot_be_reached_is_told(capsys: pytest.CaptureFixture[str]):
    flags = f"{SMALL} --ready-check-timeout-sec 0 --ours http://127.0.0.1:9 --theirs x=http://a"
    assert main(["compare", *flags.split()]) == 2
    assert "no answer in 0 s" in capsys.readouterr().err
