"""What a simulation counts, and the figures that are made of it.

Hit rate is what `B37` says: tokens taken from the cache over tokens of prompts, each request once.
Lengths are given back in real tokens.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from treadle.bench.traces import Turn

from .replica import Job

QUANTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Figures:
    """`best_hit_rate`: of one cache that forgets nothing. `imbalance`: the busiest replica over the
    mean, in requests at a moment (mean of both over all samples) and in rows over the run.
    `moved`: of sessions that went on after the kill, how many are elsewhere since, by whether their
    replica was killed. `broken`: streams cut by the kill; `lost`: errors instead of an answer.
    """

    requests: int
    seconds: float
    hit_rate: float
    best_hit_rate: float
    prompt_tokens: int
    computed_rows: int
    replayed_rows: int
    ttft_s: dict[str, float]
    ttft_mean_s: float
    imbalance_requests: float
    imbalance_rows: float
    decisions: dict[str, int]
    moved: dict[str, int]
    broken: int
    lost: int


@dataclass(slots=True, eq=False)
class Tally:
    per_token: float
    prompt: int = 0
    hit: int = 0
    best: int = 0
    replayed: int = 0
    broken: int = 0
    ttft: array[float] = field(default_factory=lambda: array("d"))
    decisions: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    busiest: float = 0.0  # sums over samples
    mean: float = 0.0

    def answered(self, job: Job, turn: Turn) -> None:
        self.prompt += job.prompt
        self.hit += job.hit
        self.best += min(turn.shared, job.prompt - 1)
        self.replayed += job.replayed
        self.ttft.append(job.first_at - job.sent_at)

    def sample(self, requests: Sequence[int]) -> None:
        """`requests`: at each living replica, at one moment."""
        self.busiest += max(requests)
        self.mean += sum(requests) / len(requests)

    def figures(self, rows: Sequence[int], seconds: float, lost: int) -> Figures:
        times = np.frombuffer(self.ttft, np.float64) if self.ttft else np.zeros(1)
        marks = np.percentile(times, QUANTILES)
        scale = self.per_token
        return Figures(
            requests=len(self.ttft),
            seconds=round(seconds, 1),
            hit_rate=round(self.hit / max(1, self.prompt), 5),
            best_hit_rate=round(self.best / max(1, self.prompt), 5),
            prompt_tokens=round(self.prompt * scale),
            computed_rows=round(sum(rows) * scale),
            replayed_rows=round(self.replayed * scale),
            ttft_s={f"p{q}": _short(mark) for q, mark in zip(QUANTILES, marks, strict=True)},
            ttft_mean_s=_short(float(times.mean())),
            imbalance_requests=_short(self.busiest / self.mean if self.mean else 0.0),
            imbalance_rows=_short(max(rows) * len(rows) / max(1, sum(rows))),
            decisions=dict(sorted(self.decisions.items())),
            moved=dict(sorted(self.moved.items())),
            broken=self.broken,
            lost=lost,
        )


def _short(value: float) -> float:
    return float(f"{value:.4g}")
