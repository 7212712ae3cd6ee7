"""Flags -> the load that they describe."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from test.treadle.bench.test_conversations import WORDS
from test.treadle.bench.test_recorded import count, write
from treadle.bench.conversations import Conversation
from treadle.bench.datasets import read_load
from treadle.bench.serving_flags import parser


async def read(flags: str) -> list[Conversation]:
    return await read_load(parser().parse_args(flags.split()), WORDS, count, is_chat=False)


async def test_mooncakes_file_is_named_by_its_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    row = {"timestamp": 3000, "input_length": 512, "output_length": 16, "hash_ids": [0]}
    write(tmp_path, [row]).rename(tmp_path / "toolagent_trace.jsonl")
    monkeypatch.chdir(tmp_path)
    scales = "--length-scale 1/8 --mooncake-slowdown-factor 2 --mooncake-num-rounds 3"
    (one,) = await read(f"--dataset-name mooncake --mooncake-workload toolagent {scales}")
    assert one.at_s == 6 and [(t.input_len, t.output_len) for t in one.turns] == [(64, 2)] * 3


async def test_lines_that_are_too_long_are_left_out(tmp_path: Path):
    rows = [{"prompt": "a " * length, "output_len": 4} for length in (3, 9)]
    flags = f"--dataset-name custom --dataset-path {write(tmp_path, rows)} --sharegpt-context-len"
    (one,) = await read(f"{flags} 12")
    assert one.turns[0].input_len == 3
    with pytest.raises(ValueError, match="custom: nothing to send"):
        await read(f"{flags} 6")


async def test_an_agentic_trace_has_as_many_turns_as_are_wanted(tmp_path: Path):
    turn = {"messages": [{"role": "user", "content": "a"}]}
    path = tmp_path / "agents.json"
    path.write_bytes(orjson.dumps({"conversations": [[turn] * 5]}))
    flags = f"--dataset-name agentic-trace --dataset-path {path} --agentic-max-turns 2"
    (one,) = await read(f"{flags} --sharegpt-output-len 7")
    assert [t.output_len for t in one.turns] == [7, 7]
