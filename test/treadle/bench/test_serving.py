"""The command: its file, its table, its words for mistakes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import orjson
import pytest

from test.treadle.bench.fake_server import FakeServer
from test.treadle.bench.test_serving_run import SMALL
from treadle.bench import serving
from treadle.bench.__main__ import main
from treadle.bench.serving_flags import parser


def test_lines_are_appended_and_mistakes_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    flags = ["--base-url", "http://127.0.0.1:9", "--ready-check-timeout-sec", "0.01"]
    assert main(["serving", *flags]) == 2
    assert "http://127.0.0.1:9/v1/models" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_place_that_takes_no_result_is_told_before_the_run(tmp_path: Path):
    with pytest.raises(IsADirectoryError):
        serving.main(["--output-file", str(tmp_path)])


def test_file_is_named_after_the_run():
    args = parser().parse_args(["--num-prompts", "9", "--random-input-len", "5"])
    name = serving.default_file(args, "sglang")
    assert name.startswith("sglang_") and name.endswith("_9_5_1024.jsonl")


async def test_table_shows_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    server, file = FakeServer(), tmp_path / "new/out.jsonl"
    async with server.running() as url:
        flags = [*SMALL.split(), "--base-url", url, "--cache-report", "--output-file", str(file)]
        flags += ["--goodput", "ttft:60000"]
        for more in ([], ["--result-format", "vllm"]):
            assert await asyncio.to_thread(serving.main, [*flags, *more]) == 0
    shown = capsys.readouterr().out
    assert "TTFT" in shown and "Cached prompt tokens" in shown and "within limits" in shown
    ours, theirs = map(orjson.loads, file.read_bytes().splitlines())
    assert "mean_e2e_latency_ms" in ours and "mean_e2el_ms" in theirs
