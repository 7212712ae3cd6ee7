"""Samples of a run -> medians, ratios between servers, a table and a JSON value.

A ratio is taken between two samples of the same round and step, which ran one after the other; its
median over rounds is shown with the extremes. Of several variants of a peer, the one with the
better median stands for it, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .asks import Json
from .spread import Spread

FEWER_IS_BETTER = frozenset({"rows", "reprocessed_rows"})
NOT_SHOWN = frozenset({"prompt_tokens", "cached_tokens"})


@dataclass(frozen=True, slots=True)
class Sample:
    """One step on one server in one round. `values` are metrics by name."""

    section: str
    step: str
    server: str
    round: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A metric of a step: by server, and ours over the best peer's."""

    section: str
    step: str
    metric: str
    servers: dict[str, Spread]
    best_peer: str
    ratio: Spread | None


def read_line(found: Json) -> Line:
    """Of a result's summary. Raises KeyError."""
    servers = {name: Spread(**spread) for name, spread in found["servers"].items()}
    ratio = None if found["ratio"] is None else Spread(**found["ratio"])
    return Line(
        found["section"], found["step"], found["metric"], servers, found["best_peer"], ratio
    )


def summarise(samples: Sequence[Sample], ours: str) -> list[Line]:
    """Lines in the order in which steps were first seen."""
    keys = dict.fromkeys((s.section, s.step, metric) for s in samples for metric in s.values)
    return [_line(samples, key, ours) for key in keys]


def _line(samples: Sequence[Sample], key: tuple[str, str, str], ours: str) -> Line:
    section, step, metric = key
    found: dict[str, dict[int, float]] = {}
    for sample in samples:
        if (sample.section, sample.step) == (section, step) and metric in sample.values:
            found.setdefault(sample.server, {})[sample.round] = sample.values[metric]
    spreads = {name: Spread.of(list(values.values())) for name, values in found.items()}
    peers = [name for name in found if name != ours]
    if not peers or ours not in found:
        return Line(section, step, metric, spreads, "", None)
    pick = min if is_lower_better(metric) else max
    best = pick(peers, key=lambda name: spreads[name].median)
    rounds = [r for r in found[ours] if found[best].get(r)]
    ratios = [found[ours][r] / found[best][r] for r in rounds]
    return Line(section, step, metric, spreads, best, Spread.of(ratios) if ratios else None)


def is_lower_better(metric: str) -> bool:
    """Times, memory and work; rates are better higher."""
    return metric in FEWER_IS_BETTER or metric.endswith(("_s", "_ms", "_mib"))


def table(lines: Sequence[Line]) -> str:
    """Markdown, one table per section and metric."""
    groups = dict.fromkeys(
        (line.section, line.metric) for line in lines if line.metric not in NOT_SHOWN
    )
    return "\n\n".join(_table(lines, section, metric) for section, metric in groups)


def whole_table(lines: Sequence[Line]) -> str:
    """Markdown, every metric of every step in one table."""
    names = list(dict.fromkeys(name for line in lines for name in line.servers))
    out = [
        "| step | metric | " + " | ".join(names) + " | ours / best peer |",
        "|---" * (len(names) + 3) + "|",
    ]
    for line in lines:
        cells = [_cell(line.servers.get(name)) for name in names]
        out.append(f"| {line.step} | {line.metric} | {' | '.join(cells)} | {_cell(line.ratio)} |")
    return "\n".join(out)


def _table(lines: Sequence[Line], section: str, metric: str) -> str:
    rows = [line for line in lines if (line.section, line.metric) == (section, metric)]
    names = list(dict.fromkeys(name for row in rows for name in row.servers))
    out = [
        f"### {section}: {metric}, median (lowest - highest)",
        "",
        "| step | " + " | ".join(names) + " | ours / best peer |",
        "|---" * (len(names) + 2) + "|",
    ]
    for row in rows:
        cells = [_cell(row.servers.get(name)) for name in names]
        out.append(f"| {row.step} | " + " | ".join(cells) + f" | {_cell(row.ratio)} |")
    return "\n".join(out)


def _cell(spread: Spread | None) -> str:
    return "" if spread is None else str(spread)
