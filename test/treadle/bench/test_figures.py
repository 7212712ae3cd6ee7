"""Figures of a run against answers whose times are known."""

from __future__ import annotations

import pytest

from treadle.bench import figures
from treadle.bench.asks import Answer, Reading, Tiers, failed


def answer(sent_s: float, arrivals: tuple, cached: int = 0) -> Answer:
    count = sum(n for _, n in arrivals)
    said = Reading(arrivals, "", None, 100, count, cached, 3)
    return Answer(sent_s, 100, said)


RUN = figures.Run(
    [
        answer(0.0, ((1.0, 1), (1.5, 1), (2.5, 2)), 40),
        answer(2.0, ((0.5, 1),), 90),
        failed(3.0, 100, "gone"),
    ],
    4.0,
)


def test_rates_are_of_whole_answers_over_the_duration():
    found = figures.rates(RUN)
    assert (found["completed"], found["failed"]) == (2, 1)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (200, 5)
    assert found["request_throughput"] == 0.5 and found["total_throughput"] == 205 / 4


def test_latencies_are_as_their_names_say():
    found = figures.latencies(RUN, "e2e_latency")
    assert found["mean_ttft_ms"] == 750 and found["median_e2e_latency_ms"] == 1500
    assert found["mean_tpot_ms"] == 500  # of the one request with more than one token
    assert found["mean_itl_ms"] == 500 and found["p99_itl_ms"] == 500


def test_load_is_counted_from_arrivals():
    found = figures.load_figures(RUN)
    assert found["concurrency"] == 3 / 4
    assert found["max_concurrent_requests"] == 2
    assert found["max_output_tokens_per_s"] == 3  # of both, from 2.0 to 3.0
    assert found["accept_length"] is None


def test_goodput_wants_every_limit_met_and_counts_failures():
    found = figures.goodput(RUN, {"ttft": 600.0, "e2el": 9000.0})
    assert found["request_goodput"] == 1 / 4 and found["slo_attainment"] == 1 / 3
    assert found["slo_attainment_by_metric"] == pytest.approx({"ttft": 1 / 3, "e2el": 2 / 3})


def test_cache_report_is_over_prompts():
    report = figures.cache_report(RUN)["cache_report"]
    assert report["cache_hit_rate_pct"] == 65 and report["total_replayed_tokens"] == 6
    assert report["host_cached_tokens"] is None  # not told


def test_cache_report_has_what_the_server_tells_of_tiers():
    said = [
        Reading(((1.0, 1),), "", None, 10, 1, 6, 0, Tiers(4, 2, 0, None)),
        Reading(((1.0, 1),), "", None, 10, 1, 9, 0, Tiers(1, 0, 8, "disk")),
        Reading(((1.0, 1),), "", None, 10, 1),
    ]
    run = figures.Run([Answer(0.0, 10, reading) for reading in said], 1.0)
    report = figures.cache_report(run)["cache_report"]
    kinds = ("device", "host", "storage")
    assert [report[f"{kind}_cached_tokens"] for kind in kinds] == [5, 2, 8]
    assert (report["total_cached_tokens"], report["storage_backend"]) == (15, "disk")
    silent = figures.Run(run.answers[2:], 1.0)
    assert figures.cache_report(silent)["cache_report"]["cache_hit_rate_pct"] is None


def test_nothing_measured_is_zero_and_not_an_error():
    found = figures.latencies(figures.Run([failed(0.0, 1, "gone")], 0.0), "e2e_latency")
    assert set(found.values()) == {0.0}
