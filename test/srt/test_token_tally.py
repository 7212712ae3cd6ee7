"""The cheap histogram says what prometheus_client's own says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from treadle.srt.token_tally import TokenTally

BOUNDS = (0.0, 0.125, 0.5, 1, 8)
VALUES = st.sampled_from((0.0, 0.0625, 0.125, 0.25, 1.0, 9.0))  # sums are exact


@given(st.lists(st.tuples(VALUES, st.integers(1, 3))))
def test_page_is_the_one_of_a_histogram(values: list[tuple[float, int]]):
    registry, expected = CollectorRegistry(), CollectorRegistry()
    tally = TokenTally("gap_seconds", "gaps", {"model_name": "m"}, BOUNDS)
    registry.register(tally)
    histogram = Histogram("gap_seconds", "gaps", ["model_name"], buckets=BOUNDS, registry=expected)
    series = histogram.labels(model_name="m")
    for value, count in values:
        tally.add(value, count)
        for _ in range(count):
            series.observe(value)
    page, reference = _samples(registry), _samples(expected)
    assert page == reference


def _samples(registry: CollectorRegistry) -> list[str]:
    """The page but for the times at which a series was made."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]
