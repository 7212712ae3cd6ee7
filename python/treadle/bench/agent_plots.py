"""Points of `bench agent` as a picture: throughput against interactivity and against TTFT.

A server's points are joined where no other point of it is better in both: its Pareto front. Points
of several rounds are shown by their medians.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .agent_figures import Point
from .spread import percentile

Pair = tuple[float, float, int]  # x, y, concurrency


def draw(points: Sequence[Point], title: str) -> Figure:
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, name in enumerate(dict.fromkeys(point.server for point in points)):
        own = [point for point in points if point.server == name and point.is_valid]
        seen = _medians(own, lambda point: point.interactivity["p90"])
        _line(left, seen, front(seen, larger_x=True), f"C{number}", name)
        waited = _medians(own, lambda point: point.ttft_s["p90"])
        _line(right, waited, front(waited, larger_x=False), f"C{number}", name)
    left.set_xlabel("P90 interactivity, tok/s/user (right is better)")
    right.set_xlabel("P90 TTFT, s (left is better)")
    for axes in (left, right):
        axes.set_ylabel("throughput per device, tok/s, input and output")
        axes.margins(0.15)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    right.legend(fontsize="small", title="numbers: sessions at once")
    figure.suptitle(title, fontsize="medium")
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """STEM.png and STEM.svg."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with mpl.rc_context({"svg.hashsalt": "treadle"}):  # the same picture is the same file
            figure.savefig(path, dpi=110, metadata=metadata)
    return paths


def front(pairs: Sequence[Pair], *, larger_x: bool) -> list[Pair]:
    """Those that no other beats in one of x and y without being worse in the other, by x."""

    def is_beaten(one: Pair) -> bool:
        sign = 1 if larger_x else -1
        return any(
            sign * (other[0] - one[0]) >= 0 and other[1] >= one[1] and other[:2] != one[:2]
            for other in pairs
        )

    return sorted(pair for pair in pairs if not is_beaten(pair))


def _medians(points: Sequence[Point], of: Callable[[Point], float]) -> list[Pair]:
    found = []
    for concurrency in dict.fromkeys(point.concurrency for point in points):
        own = [point for point in points if point.concurrency == concurrency]
        y = percentile([point.total_tps_per_device for point in own], 50)
        found.append((percentile([of(point) for point in own], 50), y, concurrency))
    return found


def _line(axes: Axes, pairs: list[Pair], best: list[Pair], color: str, name: str) -> None:
    axes.plot([x for x, _, _ in pairs], [y for _, y, _ in pairs], "o", color=color, label=name)
    axes.plot([x for x, _, _ in best], [y for _, y, _ in best], "-", color=color)
    for x, y, concurrency in pairs:
        axes.annotate(str(concurrency), (x, y), xytext=(4, 4), textcoords="offset points")
