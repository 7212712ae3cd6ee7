"""A line for each number of sessions and server."""

from __future__ import annotations

from test.treadle.bench.test_agent_figures import RUN, sample
from treadle.bench.agent_figures import point
from treadle.bench.agent_play import Sample
from treadle.bench.agent_table import table
from treadle.bench.asks import Json, failed


def row(*samples: Sample) -> Json:
    return point(samples, RUN).as_row()


def test_rounds_are_one_line_of_medians():
    lines = table([row(sample(x)) for x in (0.1, 0.2, 0.4)]).splitlines()
    assert len(lines) == 3 and len({line.count("|") for line in lines}) == 1
    assert "| 2 | a | 1 / 1 | 5 / 5 |" in lines[2]
    assert lines[2].endswith("| 25 | 15 | 80.0 (90.0) | 300 |")


def test_what_is_not_told_and_what_failed_is_said():
    assert "| - | - | - (90.0) |" in table([row(sample(0.1, cached=None))])
    bad = table([row(Sample("s", 0, 0, failed(0.0, 9, "refused")))])
    assert "invalid: 1 of 1 turns failed (refused)" in bad
