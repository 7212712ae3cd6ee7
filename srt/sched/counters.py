"""Counters of the scheduler, under the plain names of `messages.Stats`. Totals since start."""

from __future__ import annotations

from collections import Counter

from ..cache.lease import PrefixHit
from ..messages import Finish
from .plan import PlannedSpan
from .request import Request

PREFILL, CACHED, DECODE = (
    f"realtime_tokens{{mode={mode}}}" for mode in ("prefill_compute", "prefill_cache", "decode")
)
ZEROES = (
    "prompt_tokens",
    "generation_tokens",
    "fresh_rows",
    "replay_rows",
    "recomputed_rows",
    "preemptions",
    "grammar_requests",
    "spec_verify_spans",
    "spec_draft_tokens",
    "spec_accepted_tokens",
    PREFILL,
    CACHED,
    DECODE,
)


class Counters:
    """`fresh_rows` and `replay_rows` are prompt rows of first admissions; whatever a resumed
    request runs a second time is `recomputed_rows`, so that it dilutes no ratio (rule B37)."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(ZEROES, 0))

    def admitted(self, request: Request, hit: PrefixHit) -> None:
        """First admission of a request. The prompt of a fork is its parent's (B37)."""
        if request.parent is not None:
            return
        self._counts["prompt_tokens"] += request.prompt_len
        self._counts[CACHED] += hit.length
        if hit.replayed:
            self._counts[f"replay_requests{{mode={request.shape.mode}}}"] += 1

    def constrained(self) -> None:
        """A request with a grammar has arrived."""
        self._counts["grammar_requests"] += 1

    def preempted(self) -> None:
        self._counts["preemptions"] += 1

    def ran(self, span: PlannedSpan) -> None:
        """Rows of a span that a step has answered."""
        request, start, hit, end, _ = span
        again = max(0, min(end, request.ever_computed) - start)
        replayed = max(0, min(end, hit) - start - again)
        fresh = max(0, min(end, request.prompt_len) - start - again - replayed)
        self._counts["recomputed_rows"] += again
        self._counts["replay_rows"] += replayed
        self._counts["fresh_rows"] += fresh
        self._counts[PREFILL] += fresh

    def verified(self, num_drafts: int, num_tokens: int) -> None:
        """A span with `num_drafts` became `num_tokens`: accepted drafts, and one more."""
        if num_drafts:
            self._counts["spec_verify_spans"] += 1
            self._counts["spec_draft_tokens"] += num_drafts
            self._counts["spec_accepted_tokens"] += num_tokens - 1

    def sampled(self, count: int) -> None:
        """Tokens that one step gave to clients."""
        self._counts["generation_tokens"] += count
        self._counts[DECODE] += count

    def aborted(self, reason: str, phase: str) -> None:
        self._counts[f"aborts{{reason={reason},phase={phase}}}"] += 1

    def finished(self, finish: Finish) -> None:
        outcome = finish.reason if finish.status in (200, 499) else f"error_{finish.status}"
        self._counts[f"request_outcomes{{outcome={outcome}}}"] += 1

    def snapshot(self) -> dict[str, float]:
        return {name: float(count) for name, count in self._counts.items()}
