"""All requests at once: keys of the result, and what is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from test.treadle.bench.fake_server import FakeServer
from treadle.bench import offline_throughput
from treadle.bench.__main__ import main

KEYS = """
total_latency total_input_tokens total_output_tokens successful_requests request_throughput
input_throughput output_throughput total_throughput last_gen_throughput
"""
SMALL = "--num-prompts 5 --random-input-len 20 --random-output-len 4 --random-range-ratio 1"


async def test_result_has_the_keys_of_sglangs_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    server, file = FakeServer(), tmp_path / "out.jsonl"
    async with server.running() as url:
        flags = [*SMALL.split(), "--base-url", url, "--skip-warmup", "--result-filename", str(file)]
        assert await asyncio.to_thread(offline_throughput.main, flags) == 0
        server.fails_after = 7
        assert await asyncio.to_thread(offline_throughput.main, flags) == 1
    first, second = map(orjson.loads, file.read_bytes().splitlines())
    assert set(first) == {*KEYS.split(), "failed"}
    assert (first["successful_requests"], first["total_output_tokens"]) == (5, 20)
    assert first["total_input_tokens"] == 100 and first["last_gen_throughput"] == 12.5
    assert (second["successful_requests"], second["failed"]) == (2, 3)
    assert "output_throughput" in capsys.readouterr().out
    assert len(server.asked) == 10


async def test_what_the_user_can_mend_is_told(capsys: pytest.CaptureFixture[str]):
    assert main(["offline_throughput"]) == 2
    assert "--model-path" in capsys.readouterr().err
    async with FakeServer().running() as url:
        flags = ["offline_throughput", "--base-url", url, "--dataset-name", "jsonl"]
        assert await asyncio.to_thread(main, flags) == 2
    assert "needs --dataset-path" in capsys.readouterr().err
