"""Rows of a simulation's result, and the table that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .setting import Setting
from .tally import Figures

HEADS = (
    "replicas",
    "sessions",
    "policy",
    "pool, tokens",
    "hit rate, % (best possible)",
    "replayed of computed rows, %",
    "TTFT p50 / p90 / p99, s",
    "busiest / mean: requests, rows",
    "went elsewhere after the kill: of killed, of others",
    "simulated in, s (of CPU)",
)


@dataclass(frozen=True, slots=True)
class Row:
    setting: Setting
    figures: Figures
    wall_s: float
    cpu_s: float


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [" | ".join(HEADS), "|".join(["---"] * len(HEADS)), *map(_line, rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _line(row: Row) -> str:
    setting, found = row.setting, row.figures
    replayed = 100 * found.replayed_rows / max(1, found.computed_rows)
    cells = (
        f"{setting.replicas:,}",
        f"{setting.sessions:,}",
        f"`{setting.policy}`",
        f"{setting.pool_tokens:,}",
        f"{100 * found.hit_rate:.2f} ({100 * found.best_hit_rate:.2f})",
        f"{replayed:.2f}",
        " / ".join(f"{seconds:.3g}" for seconds in found.ttft_s.values()),
        f"{found.imbalance_requests:.2f}, {found.imbalance_rows:.2f}",
        f"{_moved(found, 'killed')}, {_moved(found, 'alive')}",
        f"{row.wall_s:.0f} ({row.cpu_s:.0f})",
    )
    return " | ".join(cells)


def _moved(found: Figures, state: str) -> str:
    moved, stayed = (found.moved.get(f"{state}_{name}", 0) for name in ("moved", "stayed"))
    return f"{moved} of {moved + stayed}"
