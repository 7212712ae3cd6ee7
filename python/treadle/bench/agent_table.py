"""Points of agent sessions as a Markdown table; read from a result, so a report shows the same.

Of several rounds the medians are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from .asks import Json
from .spread import percentile, three_digits

HEAD = (
    "sessions at once", "server", "TTFT p50 / p90, s", "interactivity p50 / p90, tok/s/user",
    "tok/s per device, all / output", "prompt tokens run", "run again", "hit rate (best), %",
    "RSS, MiB",
)  # fmt: skip
NOT_TOLD = "-"  # by the server


def table(points: Sequence[Json]) -> str:
    """`points`: those of a result. Invalid ones show what failed instead of figures."""
    lines = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    for key in dict.fromkeys((point["concurrency"], point["server"]) for point in points):
        own = [point for point in points if (point["concurrency"], point["server"]) == key]
        failed = [point for point in own if not _is_valid(point)]
        cells = [_failure(failed[0])] + [""] * (len(HEAD) - 3) if failed else _cells(own)
        lines.append("| " + " | ".join([str(key[0]), key[1], *cells]) + " |")
    return "\n".join(lines) + "\n"


def _cells(own: Sequence[Json]) -> list[str]:
    def median(*path: str) -> float | None:
        values = [_at(point, path) for point in own]
        return None if None in values else percentile([v for v in values if v is not None], 50)

    def both(first: float | None, second: float | None) -> str:
        return f"{_short(first)} / {_short(second)}"

    return [
        both(median("ttft_s", "p50"), median("ttft_s", "p90")),
        both(median("interactivity", "p50"), median("interactivity", "p90")),
        both(median("total_tps_per_device"), median("output_tps_per_device")),
        _short(median("tokens", "rows")),
        _short(median("tokens", "reprocessed")),
        f"{_percent(median('hit_rate'))} ({_percent(median('best_hit_rate'))})",
        _short(median("memory", "rss")),
    ]


def _at(point: Json, path: Sequence[str]) -> float | None:
    found = point
    for name in path:
        if found is None:
            return None
        found = found[name]
    return None if found is None else float(found)  # type: ignore[arg-type]


def _is_valid(point: Json) -> bool:
    return bool(point["is_valid"])


def _failure(point: Json) -> str:
    return f"invalid: {point['failed']} of {point['turns']} turns failed ({point['first_error']})"


def _short(value: float | None) -> str:
    return NOT_TOLD if value is None else three_digits(value)


def _percent(rate: float | None) -> str:
    return NOT_TOLD if rate is None else f"{100 * rate:.1f}"
