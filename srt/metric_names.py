"""The scheduler's plain names and what dashboards of other servers call the same numbers.

A name of the scheduler that is not here is exported under our own prefix. Gauges that are a
function of others are computed here, so that two gauges of one fact cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OutsideName:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


def split_label(key: str) -> tuple[str, dict[str, str]]:
    """`pages{state=free}` -> ("pages", {"state": "free"})."""
    name, brace, rest = key.partition("{")
    if not brace:
        return name, {}
    pairs = (pair.partition("=") for pair in rest.rstrip("}").split(","))
    return name, {label: value for label, _, value in pairs}


OUTSIDE: dict[str, OutsideName] = {}


def derived_gauges(gauges: Mapping[str, float]) -> dict[str, float]:
    return {}
