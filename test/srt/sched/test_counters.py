"""Counters agree with what was run and with the usage that clients are told (B37)."""

from __future__ import annotations

from random import Random

import pytest

from test.fake_model import FakeModel
from treadle.srt.messages import AbortRequest, RequestId

from .conftest import MakeLoop


@pytest.mark.parametrize("windows", [0, 2])
@pytest.mark.parametrize("overlap", [True, False])
def test_rows_run_are_prompt_less_hit_plus_replay(
    make_loop: MakeLoop, rng: Random, windows: int, overlap: bool
):
    loop = make_loop(windows=windows, overlap=overlap, num_pages=300, chunk_tokens=30)
    for i in range(60):
        ids = [*range(rng.choice((5, 30, 60))), *(rng.randrange(50) for _ in range(9))]
        loop.add(str(i), ids, max_new_tokens=rng.choice((0, 1, 9)))
        for _ in range(rng.randrange(4)):
            loop.step()
    loop.drain()
    usages = [output.usage for output in loop.done.values()]
    counters = loop.counters()
    assert counters["preemptions"] == 0
    prompt, cached = (
        sum(usage.prompt_tokens for usage in usages),
        sum(usage.cached_tokens for usage in usages),
    )
    replayed = sum(usage.replayed_tokens for usage in usages)
    assert cached > 0 and (replayed > 0) == (windows > 0)
    assert counters["fresh_rows"] == prompt - cached
    assert counters["replay_rows"] == replayed
    assert counters["prompt_tokens"] == counters["prefix_query_tokens"] == prompt
    assert counters["prefix_hit_tokens"] == cached
    assert counters["realtime_tokens{mode=prefill_compute}"] == prompt - cached
    assert counters["realtime_tokens{mode=prefill_cache}"] == cached
    generated = sum(usage.completion_tokens for usage in usages)
    assert counters["generation_tokens"] == generated
    assert counters["realtime_tokens{mode=decode}"] == generated


def test_a_request_that_died_in_the_queue_dilutes_nothing(make_loop: MakeLoop):
    loop = make_loop()
    loop.add("a", range(40))
    loop.scheduler.abort(AbortRequest(RequestId("a"), "client"), 0.0)
    counters = loop.counters()
    assert counters["prompt_tokens"] == counters["prefix_query_tokens"] == 0
    assert counters["aborts{reason=client,phase=queued}"] == 1
    assert counters["request_outcomes{outcome=abort}"] == 1


def test_outcomes_name_errors(make_loop: MakeLoop):
    loop = make_loop(model=FakeModel(nan_rate=1.0), max_queued=1, max_running=1)
    for rid in "abc":
        loop.add(rid, range(4))
    loop.drain()
    counters = loop.counters()
    assert counters["request_outcomes{outcome=error_500}"] == 2
    assert counters["request_outcomes{outcome=error_503}"] == 1


def test_a_stop_string_is_an_outcome_and_no_abort(make_loop: MakeLoop):
    loop = make_loop()
    loop.add("a", range(4))
    loop.scheduler.abort(AbortRequest(RequestId("a"), "stop"), 0.0)
    counters = loop.counters()
    assert counters["request_outcomes{outcome=stop}"] == 1
    assert not any(name.startswith("aborts") for name in counters)
