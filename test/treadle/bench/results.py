"""A folder of results as the commands write them, small."""

from __future__ import annotations

from pathlib import Path

from test.treadle.bench.test_agent_figures import RUN, sample
from treadle.bench.agent_figures import point
from treadle.bench.environment import write_result
from treadle.bench.ratios import Sample, summarise
from treadle.bench.report_tables import ROWS

ENVIRONMENT = {"command": "python -m x <y>", "commit": "abc", "date": "2026-01-01", "cpu": "a CPU"}


def write(folder: Path) -> None:
    """`turns`: of two servers; `sessions`: of agents, with a plot in two forms and one in one."""
    samples = []
    for number in range(3):
        for server, factor in (("treadle", 1.0), ("llama.cpp", 2.0 + number)):
            for row in ROWS:
                values = {row.metric: 4000.0 * factor, "rows": 1.0 if factor == 1 else 1395.0}
                samples.append(Sample(row.section, row.step, server, number, values))
    turns = {
        "environment": ENVIRONMENT,
        "notes": ["a < b"],
        "summary": summarise(samples, "treadle"),
    }
    write_result(folder / "turns.json", turns)
    sessions = {
        "kind": "agent",
        "environment": ENVIRONMENT,
        "scales": {"length": 0.0625, "time": 0.5, "think": "recorded"},
        "summary": [],
        "points": [point([sample(0.1)], RUN).as_row()],
    }
    write_result(folder / "sessions.json", sessions)
    (folder / "sessions.svg").write_text("<svg/>")
    (folder / "sessions.png").write_bytes(b"PNG of the same")
    (folder / "sessions-more.png").write_bytes(b"PNG of more")
