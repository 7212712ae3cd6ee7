"""What is made of turns: interactivity, throughput, rows that ran again."""

from __future__ import annotations

from dataclasses import replace

from treadle.bench.agent_figures import Point, Run, point, reprocessed, row
from treadle.bench.agent_play import Sample
from treadle.bench.asks import Answer, Reading, failed
from treadle.bench.processes import Memory

RUN = Run("a", 2, 0, 10.0, 2, Memory(300.0, 200.0))


def sample(itl_s: float, cached: int | None = 80, best: int = 90, replayed: int = 5) -> Sample:
    """A prompt of 100, 5 tokens."""
    arrivals = tuple((1.0 + n * itl_s, 1) for n in range(5))
    said = Reading(arrivals, "", (1,) * 5, 100, 5, cached, replayed)
    return Sample(f"s{itl_s}", 1, best, Answer(0.0, 100, said))


def test_interactivity_is_what_so_many_of_the_requests_exceed():
    found = point([sample(n / 100) for n in range(1, 12)], RUN)
    assert found.interactivity["p50"] == 16.667 and found.interactivity["p90"] == 10.0
    assert found.mean_itl_s["p90"] == 0.1 and found.ttft_s["mean"] == 1.0
    assert found.full_response_interactivity["p90"] == round(5 / 1.4, 3)


def test_throughput_is_per_device_and_counts_cached_input():
    found = point([sample(0.1)] * 4, RUN)
    assert found.total_tps_per_device == 4 * 105 / 20 and found.output_tps_per_device == 1.0
    assert found.memory == Memory(300.0, 200.0)


def test_reprocessed_rows_are_those_above_a_cache_that_forgets_nothing():
    one = sample(0.1)
    assert one.answer.said.rows == 25 and reprocessed(one) == 15
    found = point([one, sample(0.1, cached=90, replayed=0)], RUN)
    assert (found.tokens.rows, found.tokens.reprocessed) == (35, 15)
    assert (found.hit_rate, found.best_hit_rate) == (0.85, 0.9)
    assert found.values()["reprocessed_rows"] == 15 and found.values()["rss_mib"] == 300


def test_a_server_that_tells_nothing_of_its_cache_has_no_rows():
    found = point([sample(0.1), sample(0.1, cached=None)], replace(RUN, memory=None))
    assert found.tokens.rows is None and found.hit_rate is None
    assert not {"rows", "rss_mib"} & found.values().keys()
    assert row(sample(0.1, cached=None), RUN)["reprocessed"] is None


def test_a_tenth_of_the_turns_may_fail():
    bad = Sample("f", 0, 0, failed(0.0, 9, "refused"))

    def with_failed(count: int) -> Point:
        return point([sample(0.1)] * (10 - count) + [bad] * count, RUN)

    assert with_failed(1).is_valid and with_failed(1).first_error == "refused"
    assert not with_failed(2).is_valid and not with_failed(10).is_valid
    assert not point([], RUN).is_valid
    assert row(bad, RUN)["error"] == "refused"
