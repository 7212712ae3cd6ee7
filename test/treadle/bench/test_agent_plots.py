"""Pareto fronts, and pictures of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="plots need the extra `bench`")

from test.treadle.bench.test_agent_figures import RUN, sample
from treadle.bench.agent_figures import Point, point
from treadle.bench.agent_plots import draw, front, save


def test_a_front_has_the_points_that_no_other_beats():
    pairs = [(1.0, 9.0, 4), (2.0, 7.0, 2), (2.0, 6.0, 3), (3.0, 5.0, 1), (1.0, 5.0, 8)]
    assert front(pairs, larger_x=True) == [(1.0, 9.0, 4), (2.0, 7.0, 2), (3.0, 5.0, 1)]
    assert front(pairs, larger_x=False) == [(1.0, 9.0, 4)]
    assert front([(1.0, 1.0, 1), (1.0, 1.0, 2)], larger_x=True) == [(1.0, 1.0, 1), (1.0, 1.0, 2)]


def test_servers_are_on_one_picture_in_two_forms(tmp_path: Path):
    def at(server: str, concurrency: int, itl_s: float) -> Point:
        return point([sample(itl_s)], replace(RUN, server=server, concurrency=concurrency))

    points = [at(name, n, n / 10) for name in ("ours", "theirs") for n in (1, 2, 4)]
    for name in ("one", "two"):
        paths = save(draw(points, "a title"), tmp_path / name)
        assert [path.name for path in paths] == [f"{name}.png", f"{name}.svg"]
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    figure = draw(points, "a title")
    left, right = figure.axes
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["ours", "theirs"]
    assert "interactivity" in left.get_xlabel() and "TTFT" in right.get_xlabel()


def test_invalid_points_are_not_drawn():
    bad = replace(point([sample(0.1)], RUN), failed=1)
    left, _ = draw([bad], "").axes
    assert left.lines and not any(line.get_xydata().size for line in left.lines)
