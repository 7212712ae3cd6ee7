"""A histogram for what happens at every token: adding is a search and two additions.

A histogram of prometheus_client takes locks for each value; told of every token, it cost more than
the token's text. Owns the counts only: they become a metric family when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class TokenTally(Collector):
    """One series. `bounds` ascend; a value counts in the first bucket that is no less."""

    def __init__(
        self, name: str, text: str, labels: Mapping[str, str], bounds: tuple[float, ...]
    ) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._bounds = bounds
        self._names = [*map(floatToGoString, map(float, bounds)), "+Inf"]
        self._counts = [0] * len(self._names)
        self._sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """`count` tokens of `value` each."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=tuple(self._labels))
        buckets = list(zip(self._names, accumulate(self._counts), strict=True))
        family.add_metric(tuple(self._labels.values()), buckets, self._sum)
        yield family
