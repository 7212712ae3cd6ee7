"""What of a request becomes which metric."""

from __future__ import annotations

import pytest

from treadle.srt.messages import Usage
from treadle.srt.metrics import RequestMetrics
from treadle.srt.tokenizer.stats import Meter

from .test_choice import make

LABELS = {"model_name": "m", "engine_type": "unified"}


def sample(metrics: RequestMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {**LABELS, **labels})


def test_times_are_from_arrival_and_between_tokens():
    metrics, choice = RequestMetrics("m"), make()
    meter = Meter(metrics, is_streaming=True)
    choice.arrived_at = 10.0
    choice.usage = Usage(5, 1, 4, 2)
    meter.arrived(1)
    meter.admitted(choice)
    meter.progressed(choice, 0, 0.5, now=11.0)  # no token, no time
    meter.progressed(choice, 1, 0.5, now=12.0)
    meter.progressed(choice, 2, 0.5, now=13.0)
    meter.finished(choice, is_aborted=False, now=14.0)
    assert sample(metrics, "sglang:time_to_first_token_seconds_sum", is_streaming="True") == 2.0
    assert sample(metrics, "treadle:time_to_first_token_seconds_count", hit="1") == 1
    assert sample(metrics, "sglang:inter_token_latency_seconds_count") == 2
    assert sample(metrics, "sglang:inter_token_latency_seconds_sum") == 1.0
    assert sample(metrics, "sglang:e2e_request_latency_seconds_sum") == 4.0
    assert sample(metrics, "sglang:queue_time_seconds_sum") == 0.5
    assert sample(metrics, "sglang:generation_tokens_total", is_streaming="True") == 3
    assert sample(metrics, "sglang:prompt_tokens_total", is_streaming="True") == 5
    assert sample(metrics, "sglang:cached_tokens_total", cache_source="device") == 4
    assert sample(metrics, "treadle:swa_replayed_tokens_total", part="encoder") == 2


@pytest.mark.parametrize(("is_aborted", "aborts", "ends"), [(True, 1, None), (False, 0, 1)])
def test_aborts_are_no_latencies(is_aborted: bool, aborts: int, ends: int | None):
    metrics = RequestMetrics("m")
    Meter(metrics, is_streaming=False).finished(make(), is_aborted=is_aborted, now=1.0)
    assert sample(metrics, "sglang:num_aborted_requests_total") == aborts
    assert sample(metrics, "sglang:e2e_request_latency_seconds_count") == ends


def test_probes_count_nothing_but_keep_times():
    choice, meter = make(), Meter(None, is_streaming=False)
    meter.arrived(1)
    meter.admitted(choice)
    meter.progressed(choice, 1, 0.0, now=1.0)
    meter.finished(choice, is_aborted=False, now=1.0)
    assert choice.first_at == 1.0
