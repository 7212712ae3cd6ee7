"""Graphs of decode steps; capturing needs a device."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from test.device_engine import DeviceEngine
from test.tiny import tiny_gemma3
from treadle.srt.worker.graphs import DecodeGraphs, graph_sizes


def test_sizes_reach_the_largest_and_lie_close_where_padding_costs():
    assert graph_sizes(1) == [1]
    assert graph_sizes(20) == [1, 2, 4, 8, 16, 20]
    sizes = graph_sizes(300)
    assert sizes[-3:] == [256, 288, 300]
    assert all(b <= a * 2 for a, b in zip(sizes, sizes[1:], strict=False))
    assert graph_sizes(0) == []


def test_without_graphs_a_step_runs_as_it_is():
    assert DecodeGraphs({}).sizes == []


@pytest.mark.gpu
def test_replayed_steps_give_what_eager_ones_give(tmp_path: Path):
    folder = tiny_gemma3(tmp_path / "m")
    rng = random.Random(2)
    prompts = [[rng.randrange(5, 300) for _ in range(n)] for n in (3, 40, 90)]
    answers = []
    for largest in (0, 4):
        engine = DeviceEngine(folder, graphs=largest)
        for i, prompt in enumerate(prompts):
            engine.add(f"r{i}", prompt, 20)
        engine.run()
        answers.append([x.token_ids for x in engine.answers.values()])
    assert answers[0] == answers[1]
