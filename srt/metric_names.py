"""The scheduler's plain names and what dashboards of other servers call the same numbers.

A name of the scheduler that is not here is exported under our own prefix, with its labels. Numbers
that are a function of others are computed here at scrape time, so that two of one fact cannot
disagree. Pages that the tree could give up count as available, not as used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OWN = "treadle:"
KNOWN = "sglang:"

OUTSIDE = {
    "running": KNOWN + "num_running_reqs",
    "waiting": KNOWN + "num_queue_reqs",
    "held": KNOWN + "num_grammar_queue_reqs",
    "grammar_requests": KNOWN + "num_so_requests",
    "realtime_tokens": KNOWN + "realtime_tokens",
    "gen_throughput": KNOWN + "gen_throughput",
    "new_token_ratio": KNOWN + "new_token_ratio",
    "preempted": KNOWN + "num_retracted_reqs",
}
IN_USE = ("protected", "private", "quarantine")
GB = 1e9


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Sizes that do not change while serving. `window` is 0 for models without window layers."""

    page_size: int
    window: int
    context_len: int
    weight_bytes: int
    kv_bytes: int


def split_labels(key: str) -> tuple[str, dict[str, str]]:
    """`aborts{reason=user,phase=running}` -> ("aborts", {"reason": "user", ...})."""
    name, brace, rest = key.partition("{")
    if not brace:
        return name, {}
    pairs = (pair.partition("=") for pair in rest.rstrip("}").split(","))
    return name, {label: value for label, _, value in pairs}


def split_histograms(
    counters: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """Buckets and sums of histograms, as `step_times.py` names them, and all other counters."""
    stems = {split_labels(key)[0].removesuffix("_bucket") for key in counters if "le=" in key}
    ends = tuple(stem + end for stem in stems for end in ("_bucket", "_sum"))
    ours = {key: x for key, x in counters.items() if split_labels(key)[0] in ends}
    return ours, {key: x for key, x in counters.items() if key not in ours}


def outside_name(plain: str) -> str:
    return OUTSIDE.get(plain, OWN + plain)


def derived_counters(counters: Mapping[str, float], facts: EngineFacts) -> dict[str, float]:
    pages = sum(v for key, v in counters.items() if split_labels(key)[0] == "evicted_pages")
    return {KNOWN + "evicted_tokens": pages * facts.page_size}


def derived_gauges(
    counters: Mapping[str, float], gauges: Mapping[str, float], facts: EngineFacts
) -> dict[str, float]:
    """Empty without gauges: a scheduler that does not answer has no numbers."""
    if not gauges:
        return {}
    queries = counters.get("prefix_query_tokens", 0.0)
    hit_rate = counters.get("prefix_hit_tokens", 0.0) / queries if queries else 0.0
    numbers = {
        "cache_hit_rate": hit_rate,
        **_speculation(counters),
        "num_paused_reqs": 0,  # generation cannot be paused
        "hicache_host_used_tokens": 0,  # there is no host tier
        "hicache_host_total_tokens": 0,
        "page_size": facts.page_size,
        "context_len": facts.context_len,
        "weight_memory_usage_gb": facts.weight_bytes / GB,
        "kv_cache_memory_usage_gb": facts.kv_bytes / GB,
        **_pages(gauges, facts),
        **(_windows(gauges, facts) if facts.window else {}),
    }
    return {KNOWN + name: float(value) for name, value in numbers.items()}


def accept_length(counters: Mapping[str, float]) -> float:
    """Tokens that a verified span became, on average: accepted drafts, and one. Without any, 1."""
    spans = counters.get("spec_verify_spans", 0.0)
    return 1.0 + (counters.get("spec_accepted_tokens", 0.0) / spans if spans else 0.0)


def _speculation(counters: Mapping[str, float]) -> dict[str, float]:
    """The rate is the share of drafts that were accepted."""
    drafts = counters.get("spec_draft_tokens", 0.0)
    accepted = counters.get("spec_accepted_tokens", 0.0)
    return {
        "spec_accept_length": accept_length(counters),
        "spec_accept_rate": accepted / drafts if drafts else 0.0,
    }


def _pages(gauges: Mapping[str, float], facts: EngineFacts) -> dict[str, float]:
    tokens = {
        state: gauges.get(f"pages{{state={state}}}", 0.0) * facts.page_size
        for state in ("free", "evictable", *IN_USE)
    }
    total = sum(tokens.values())
    used = sum(tokens[state] for state in IN_USE)
    share = used / total if total else 0.0
    return {
        "token_usage": share,
        "full_token_usage": share,
        "num_used_tokens": used,
        "max_total_num_tokens": total,
        "num_pages": total / facts.page_size,
        "kv_available_tokens": tokens["free"],
        "kv_evictable_tokens": tokens["evictable"],
        "kv_used_tokens": used,
    }


def _windows(gauges: Mapping[str, float], facts: EngineFacts) -> dict[str, float]:
    """A slot holds one window of every window layer; the tree holds none. Warm ones are in nobody's
    way: whoever needs a slot takes theirs."""
    tokens = {
        state: gauges.get(f"window_slots{{state={state}}}", 0.0) * facts.window
        for state in ("free", "taken", "warm", "quarantine")
    }
    total = sum(tokens.values())
    used = tokens["taken"] + tokens["quarantine"]
    return {
        "swa_token_usage": used / total if total else 0.0,
        "max_total_num_tokens_swa": total,
        "swa_available_tokens": tokens["free"],
        "swa_evictable_tokens": tokens["warm"],
        "swa_used_tokens": used,
    }
