"""Ratios of neighbours in time, and which way is better."""

from __future__ import annotations

from treadle.bench.ratios import Sample, is_lower_better, summarise, table


def samples(metric: str, **values: tuple[float, ...]) -> list[Sample]:
    return [
        Sample("part", "step", server, number, {metric: value})
        for server, found in values.items()
        for number, value in enumerate(found)
    ]


def test_a_ratio_is_of_one_round_and_its_median_of_all():
    (line,) = summarise(samples("ttft_s", ours=(1.0, 4.0, 3.0), theirs=(2.0, 4.0, 12.0)), "ours")
    assert line.ratio is not None
    assert (line.ratio.median, line.ratio.low, line.ratio.high) == (0.5, 0.25, 1.0)
    assert line.servers["theirs"].median == 4.0
    assert "| step | 3 (1 - 4) | 4 (2 - 12) | 0.5 (0.25 - 1) |" in table([line])


def test_the_better_of_several_peers_stands_for_them():
    values = {"ours": (2.0,), "a": (4.0,), "b": (8.0,)}
    assert summarise(samples("ttft_s", **values), "ours")[0].best_peer == "a"
    assert summarise(samples("total_tps", **values), "ours")[0].best_peer == "b"


def test_alone_there_is_no_ratio():
    (line,) = summarise(samples("rows", ours=(1.0,)), "ours")
    assert line.ratio is None and line.best_peer == ""


def test_less_time_memory_and_work_are_better():
    lower = ["mean_ttft_s", "p90_itl_ms", "rss_mib", "rows", "reprocessed_rows"]
    assert all(map(is_lower_better, lower))
    assert not any(map(is_lower_better, ["total_tps", "p90_interactivity", "hit_rate"]))
