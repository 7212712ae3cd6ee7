"""Four plots of the drift of a replay, as a PNG.

python -m benchmark.quality.curve_plots replay_drift_curves     draws a result again
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
from benchmark.environment import RESULTS
from benchmark.quality.curve_run import Summary
from matplotlib.axes import Axes
from matplotlib.figure import Figure

LABEL = "KL against a cold run, nats"
DEFAULT, ECONOMY = 32, 0  # slopes


def draw(found: Sequence[Summary], path: Path) -> None:
    figure = Figure(figsize=(12, 8), layout="constrained")
    (cost, length), (far, turns) = figure.subplots(2, 2)
    hits = [s for s in found if s.part == "hit"]
    last = max(s.hit for s in hits)
    deep = [s for s in hits if s.hit == last]
    _line(cost, [s for s in deep if s.slope == 0], lambda s: s.mean_rows, "1, 2, 4 windows")
    stairs = [s for s in deep if s.depth == 1]
    _line(cost, stairs, lambda s: s.mean_rows, "staircase, slope 0, 32, 64")
    for slope in (ECONOMY, DEFAULT):
        own = [s for s in found if s.slope == slope and s.depth == 1]
        name = f"slope {slope}"
        _line(length, [s for s in own if s.part == "hit"], lambda s: s.hit, name)
        behind = min(s.hit for s in found if s.part == "far")
        near = [s for s in own if s.hit == behind and s.part in ("hit", "far")]
        _line(far, near, lambda s: s.distance + 16, name)
        _line(turns, [s for s in own if s.part == "session"], lambda s: s.generation, name)
    _finish(cost, f"what is replayed: rows a layer (hit of {last})", is_log=True)
    _finish(length, "length of the hit, tokens", is_log=True)
    _finish(far, "distance from the hit, tokens", is_log=True)
    _finish(turns, "replays behind the row: turns of a session", is_log=False)
    figure.savefig(path, dpi=90)


def _line(
    axes: Axes, own: Sequence[Summary], place: Callable[[Summary], float], label: str
) -> None:
    own = sorted(own, key=place)
    means, errors = [s.mean_kl for s in own], [s.kl_error for s in own]
    axes.errorbar([place(s) for s in own], means, errors, fmt="o-", capsize=3, label=label)


def _finish(axes: Axes, title: str, *, is_log: bool) -> None:
    axes.set_yscale("log")
    if is_log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(title)
    axes.set_ylabel(LABEL)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of a result, without .json")
    name = parser.parse_args().name
    found = orjson.loads((RESULTS / f"{name}.json").read_bytes())["curves"]["summary"]
    draw([Summary(**fields) for fields in found], RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
