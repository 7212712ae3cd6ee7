"""The scheduler's numbers under the names of dashboards."""

from __future__ import annotations

from treadle.srt.metric_names import (
    EngineFacts,
    derived_counters,
    derived_gauges,
    outside_name,
    split_labels,
)

FACTS = EngineFacts(page_size=16, window=8, context_len=100, weight_bytes=2 * 10**9, kv_bytes=10**9)
PAGES = {"free": 5, "evictable": 3, "protected": 1, "private": 1, "quarantine": 0}
GAUGES = {f"pages{{state={state}}}": float(count) for state, count in PAGES.items()}
SLOTS = {"window_slots{state=free}": 3.0, "window_slots{state=taken}": 1.0}


def test_labels_are_split():
    assert split_labels("a") == ("a", {})
    assert split_labels("a{b=c,d=e}") == ("a", {"b": "c", "d": "e"})


def test_known_names_and_own_names():
    assert outside_name("running") == "sglang:num_running_reqs"
    assert outside_name("something_new") == "treadle:something_new"


def test_use_of_the_pool_counts_neither_free_nor_evictable_pages():
    found = derived_gauges({}, GAUGES, FACTS)
    assert found["sglang:max_total_num_tokens"] == 160
    assert found["sglang:num_used_tokens"] == 32
    assert found["sglang:token_usage"] == 0.2
    assert found["sglang:kv_available_tokens"] == 80
    assert found["sglang:kv_evictable_tokens"] == 48
    assert found["sglang:weight_memory_usage_gb"] == 2.0


def test_window_gauges_only_for_models_with_windows():
    found = derived_gauges({}, GAUGES | SLOTS, FACTS)
    assert found["sglang:swa_token_usage"] == 0.25
    assert found["sglang:max_total_num_tokens_swa"] == 32
    assert found["sglang:swa_used_tokens"] == 8
    plain = EngineFacts(16, 0, 100, 0, 0)
    assert not any("swa" in name for name in derived_gauges({}, GAUGES | SLOTS, plain))


def test_hit_rate_is_hits_over_queries():
    counters = {"prefix_query_tokens": 8.0, "prefix_hit_tokens": 2.0}
    assert derived_gauges(counters, GAUGES, FACTS)["sglang:cache_hit_rate"] == 0.25
    assert derived_gauges({}, GAUGES, FACTS)["sglang:cache_hit_rate"] == 0.0


def test_evicted_pages_of_all_kinds_are_tokens():
    counters = {"evicted_pages{kind=leaf}": 2.0, "evicted_pages{kind=tail}": 1.0}
    assert derived_counters(counters, FACTS) == {"sglang:evicted_tokens": 48.0}


def test_silent_scheduler_has_no_numbers():
    assert derived_gauges({}, {}, FACTS) == {}


def test_accept_length_counts_the_token_that_comes_with_the_drafts():
    counters = {
        "spec_verify_spans": 4.0,
        "spec_draft_tokens": 20.0,
        "spec_accepted_tokens": 14.0,
    }
    found = derived_gauges(counters, GAUGES, FACTS)
    assert found["sglang:spec_accept_length"] == 4.5
    assert found["sglang:spec_accept_rate"] == 0.7
    without = derived_gauges({}, GAUGES, FACTS)
    assert without["sglang:spec_accept_length"] == 1.0
    assert without["sglang:spec_accept_rate"] == 0.0
