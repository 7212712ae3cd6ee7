"""Batches of one shape: keys and numbers of a line, and what is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from test.treadle.bench.fake_server import FakeServer
from treadle.bench import one_batch
from treadle.bench.__main__ import main
from treadle.bench.asks import Answer, Reading
from treadle.bench.one_batch import Shape, line

KEYS = """
run_name batch_size input_len output_len prefill_latency prefill_throughput median_decode_latency
median_decode_throughput total_latency overall_throughput
"""
KEYS_OF_SERVER_TOOL = """
latency input_throughput output_throughput overall_throughput last_ttft last_gen_throughput
acc_length cache_hit_rate
"""


async def test_every_combination_has_a_line_with_the_keys_of_sglangs_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    server, file = FakeServer(), tmp_path / "out.jsonl"
    sizes = "--batch-size 1 3 --input-len 20 30 --output-len 5 --run-name a"
    async with server.running() as url:
        flags = [*sizes.split(), "--base-url", url, "--result-filename", str(file), "--profile"]
        assert await asyncio.to_thread(one_batch.main, flags) == 0
    lines = [orjson.loads(text) for text in file.read_bytes().splitlines()]
    assert set(lines[0]) == {*KEYS.split(), *KEYS_OF_SERVER_TOOL.split()}
    shapes = [(one["batch_size"], one["input_len"]) for one in lines]
    assert shapes == [(1, 20), (1, 30), (3, 20), (3, 30)]
    assert {one["run_name"] for one in lines} == {"a"}
    assert len(server.asked) == 1 + 1 + 1 + 3 + 3  # the first warms up
    prompts = {tuple(body["input_ids"]) for body in server.bodies}
    assert len(prompts) == 9 and server.profiles == [{}, None] * 4
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_prefill_ends_with_the_last_first_token():
    said = [
        Reading(((0.5, 1), (0.7, 1), (0.9, 1)), "", None, 10, 3, 2),
        Reading(((1.0, 1), (1.2, 1), (1.5, 1)), "", None, 10, 3, 2),
    ]
    answers = [Answer(2.0, 10, said[0]), Answer(2.5, 10, said[1])]
    found = line(Shape(2, 10, 3), answers, {"internal_states": [{"last_gen_throughput": 7.0}]})
    assert (found["prefill_latency"], found["last_ttft"]) == (1.5, 1.5)
    assert found["prefill_throughput"] == found["input_throughput"] == pytest.approx(20 / 1.5)
    assert found["median_decode_latency"] == pytest.approx(0.2)
    assert found["median_decode_throughput"] == pytest.approx(10)
    assert found["total_latency"] == found["latency"] == pytest.approx(2.0)
    assert found["overall_throughput"] == pytest.approx(26 / 2)
    assert found["output_throughput"] == pytest.approx(6 / 0.5)
    assert (found["last_gen_throughput"], found["acc_length"]) == (7.0, None)
    assert found["cache_hit_rate"] == pytest.approx(0.2)


def test_one_token_shows_no_decode():
    answer = Answer(0.0, 10, Reading(((0.5, 1),), "", None, 10, 1))
    found = line(Shape(1, 10, 1), [answer], {})
    assert found["median_decode_latency"] is None and found["output_throughput"] is None


async def test_a_request_that_fails_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    async with FakeServer(fails_after=0).running() as url:
        flags = ["one_batch", "--base-url", url, "--result-filename", str(tmp_path / "out")]
        assert await asyncio.to_thread(main, flags) == 2
    assert "status 503" in capsys.readouterr().err
