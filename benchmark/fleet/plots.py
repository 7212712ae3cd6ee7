"""Plots of a simulation's rows: hit rate, TTFT and balance against replicas or pool, as a PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .rows import Row

LABELS = {"replicas": "replicas", "pool_tokens": "pool of a replica, tokens"}
Value = Callable[[Row], float]


def draw(rows: Sequence[Row], against: str, path: Path) -> None:
    """`against`: the field of a setting on the horizontal axis; a line for each policy."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    hits, ttft, balance = figure.subplots(1, 3)
    for policy, own in _by_policy(rows).items():
        _line(hits, own, against, policy, lambda row: 100 * row.figures.hit_rate)
        _line(ttft, own, against, f"{policy}, p50", lambda row: row.figures.ttft_s["p50"])
        _line(ttft, own, against, f"{policy}, p99", lambda row: row.figures.ttft_s["p99"], "--")
        _line(balance, own, against, policy, lambda row: row.figures.imbalance_requests)
    best = [100 * row.figures.best_hit_rate for row in next(iter(_by_policy(rows).values()))]
    hits.plot(_places(rows[: len(best)], against), best, ":", color="black", label="best possible")
    ttft.set_yscale("log")
    titles = ("hit rate, %", "TTFT, s", "requests: busiest / mean")
    for axes, title in zip((hits, ttft, balance), titles, strict=True):
        axes.set_title(title)
        axes.set_xscale("log")
        axes.set_xlabel(LABELS[against])
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=90)


def _by_policy(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.setting.policy, []).append(row)
    return found


def _places(rows: Sequence[Row], against: str) -> list[int]:
    fields = [(row.setting.replicas, row.setting.pool_tokens) for row in rows]
    return [pair[0] if against == "replicas" else pair[1] for pair in fields]


def _line(
    axes: Axes, rows: Sequence[Row], against: str, label: str, value: Value, style: str = "-"
) -> None:
    axes.plot(_places(rows, against), [value(row) for row in rows], style, marker="o", label=label)
