"""Plots of a simulation's rows: hit rate, TTFT and balance against replicas or pool, as a PNG.

python -m benchmark.fleet.plots fleet_scale [--against pool_tokens]     draws a result again
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import orjson
from benchmark.environment import RESULTS
from matplotlib.figure import Figure

from .rows import Row
from .setting import Setting
from .tally import Figures

LABELS = {"replicas": "replicas", "pool_tokens": "pool of a replica, tokens"}
TITLES = ("hit rate, %", "TTFT, s: p50, p99 (dashed)", "requests: busiest / mean")


def draw(rows: Sequence[Row], against: str, path: Path) -> None:
    """`against`: the field of a setting on the horizontal axis; a line for each policy."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    hits, ttft, balance = figure.subplots(1, 3)
    for number, (policy, own) in enumerate(_by_policy(rows).items()):
        places, color = _places(own, against), f"C{number}"
        found = [row.figures for row in own]
        hits.plot(places, [100 * f.hit_rate for f in found], "o-", color=color, label=policy)
        ttft.plot(places, [f.ttft_s["p50"] for f in found], "o-", color=color)
        ttft.plot(places, [f.ttft_s["p99"] for f in found], "o--", color=color)
        balance.plot(places, [f.imbalance_requests for f in found], "o-", color=color)
        if not number:
            best = [100 * f.best_hit_rate for f in found]
            hits.plot(places, best, ":", color="black", label="best possible")
    ttft.set_yscale("log")
    hits.legend(fontsize="small")
    for axes, title in zip((hits, ttft, balance), TITLES, strict=True):
        axes.set_title(title)
        axes.set_xscale("log")
        axes.set_xlabel(LABELS[against])
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=90)


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.setting.policy, []).append(row)
    return found


def _places(rows: Sequence[Row], against: str) -> list[int]:
    fields = [(row.setting.replicas, row.setting.pool_tokens) for row in rows]
    return [pair[0] if against == "replicas" else pair[1] for pair in fields]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of a result, without .json")
    parser.add_argument("--against", default="replicas", choices=list(LABELS))
    args = parser.parse_args()
    found = orjson.loads((RESULTS / f"{args.name}.json").read_bytes())["rows"]
    rows = [
        Row(Setting(**row.pop("setting")), Figures(**row.pop("figures")), **row) for row in found
    ]
    draw(rows, args.against, RESULTS / f"{args.name}.png")


if __name__ == "__main__":
    main()
