"""Numbers of a run cut down to what is shown: mean, median, deviation, percentiles, spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERCENTILES = (90, 95, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median with the extremes, over rounds."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        median = float(np.median(values))
        return cls(round(median, 4), round(min(values), 4), round(max(values), 4), len(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.median:.4g}"
        return f"{self.median:.4g} ({self.low:.4g} - {self.high:.4g})"


def three_digits(value: float) -> str:
    """All digits of what has more before its point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def six(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """`mean_X_ms` and five others; 0 where there is nothing to measure."""
    values = np.asarray(seconds or [0.0]) * 1000
    found = {"mean": values.mean(), "median": np.median(values), "std": values.std()}
    found |= {f"p{q}": np.percentile(values, q) for q in PERCENTILES}
    return {f"{key}_{name}_ms": float(value) for key, value in found.items()}


def percentile(values: Sequence[float], q: float) -> float:
    """0 of nothing."""
    return float(np.percentile(values, q)) if values else 0.0
