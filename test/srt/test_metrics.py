"""The metrics page: names, types, labels, no globals."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from treadle.srt.messages import Usage
from treadle.srt.metric_names import EngineFacts
from treadle.srt.metrics import HttpMetrics, RequestMetrics
from treadle.srt.step_times import StepTimes

FACTS = EngineFacts(16, 8, 100, 0, 0)
COUNTERS = {
    "realtime_tokens{mode=prefill_compute}": 1.0, "realtime_tokens{mode=decode}": 2.0,
    "evicted_pages{kind=leaf}": 1.0, "evicted_pages{kind=tail}": 1.0, "fresh_rows": 3.0,
}  # fmt: skip
GAUGES = {
    "running": 1.0,
    "gen_throughput": 3.0,
    "waiting": 2.0,
    "pages{state=free}": 4.0,
    "window_slots{state=free}": 1.0,
}
STARRED = {
    "sglang:num_running_reqs": "gauge", "sglang:num_queue_reqs": "gauge",
    "sglang:gen_throughput": "gauge", "sglang:cache_hit_rate": "gauge",
    "sglang:token_usage": "gauge", "sglang:num_used_tokens": "gauge",
    "sglang:max_total_num_tokens": "gauge", "sglang:prompt_tokens": "counter",
    "sglang:generation_tokens": "counter", "sglang:cached_tokens": "counter",
    "sglang:num_requests": "counter", "sglang:num_aborted_requests": "counter",
    "sglang:realtime_tokens": "counter", "sglang:time_to_first_token_seconds": "histogram",
    "sglang:inter_token_latency_seconds": "histogram",
    "sglang:e2e_request_latency_seconds": "histogram", "sglang:queue_time_seconds": "histogram",
    "treadle:swa_replayed_tokens": "counter", "treadle:hit_tokens": "histogram",
}  # fmt: skip


def busy() -> RequestMetrics:
    metrics = RequestMetrics("m")
    metrics.arrived(2, is_streaming=True)
    metrics.prompt(Usage(5, 0, 4, 2), is_streaming=True)
    metrics.first_token(0.1, 0.2, is_streaming=True, is_hit=False)
    metrics.next_tokens(2, 0.1)
    metrics.generated(3, is_streaming=True)
    metrics.finished(Usage(5, 3, 4, 2), 1.0)
    metrics.aborted()
    return metrics


def test_rows_of_dashboards_are_there_with_their_types():
    text = busy().render(COUNTERS, GAUGES, FACTS).decode()
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert {name: types.get(name) for name in STARRED} == STARRED


def test_text_is_well_formed_and_no_series_appears_twice():
    text = busy().render(COUNTERS, GAUGES, FACTS).decode()
    seen = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen
            seen.add(key)
            assert sample.labels["model_name"] == "m"


def test_scheduler_numbers_carry_ranks_and_their_own_labels():
    text = busy().render(COUNTERS, GAUGES, FACTS).decode()
    line = next(x for x in text.splitlines() if x.startswith("sglang:realtime_tokens_total"))
    for label in ('mode="prefill_compute"', 'tp_rank="0"', 'pp_rank="0"', 'moe_ep_rank="0"'):
        assert label in line
    assert "treadle:pages{" in text
    assert "sglang:evicted_tokens_total{" in text


def test_misses_and_small_hits_are_told_apart():
    metrics = busy()
    metrics.prompt(Usage(5, 0, 0, 0), is_streaming=False)
    lines = metrics.render({}, {}, FACTS).decode().splitlines()
    counts = [line.rsplit(" ", 1)[1] for line in lines if "treadle:hit_tokens_bucket" in line]
    assert counts[:2] == ["1.0", "2.0"]


def test_two_objects_share_nothing():
    one, two = busy(), RequestMetrics("m")
    assert b"} 5.0" in one.render({}, {}, FACTS)
    assert b"} 5.0" not in two.render({}, {}, FACTS)
    HttpMetrics(one.registry)
    HttpMetrics(two.registry)


def test_the_prefix_of_known_names_may_be_chosen():
    metrics = RequestMetrics("m", "my:")
    HttpMetrics(metrics.registry, metrics.prefix)
    text = metrics.render(COUNTERS, GAUGES, FACTS).decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert not any(name.startswith("sglang:") for name in names)
    assert {name.replace("sglang:", "my:") for name in STARRED} <= names
    assert "treadle:fresh_rows" in names


def test_times_of_steps_are_one_histogram_with_a_series_for_each_part():
    times = StepTimes()
    times.planned(1, 0.0, 0.001)
    times.answered(1, 0.101, run_s=0.05, sample_s=0.01)
    text = busy().render({**COUNTERS, **times.counters()}, GAUGES, FACTS).decode()
    families = {x.name: x for x in text_string_to_metric_families(text)}
    family = families["treadle:step_seconds"]
    assert family.type == "histogram" and "treadle:step_seconds_bucket" not in families
    sums = {x.labels["phase"]: x.value for x in family.samples if x.name.endswith("_sum")}
    assert {k: round(v, 6) for k, v in sums.items()} == {
        "plan": 0.001, "wait": 0.04, "run": 0.05, "sample": 0.01,
    }  # fmt: skip
    counts = [x.value for x in family.samples if x.name.endswith("_count")]
    assert counts == [1, 1, 1, 1]
    run = [x.value for x in family.samples if "_bucket" in x.name and x.labels["phase"] == "run"]
    assert run == sorted(run) and run[0] == 0 and run[-1] == 1
