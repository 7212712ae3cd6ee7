"""Answers of a run -> the result line of `bench serving`, under the keys that SGLang's client uses.

Latencies are of whole answers only; so are all token counts. A failed request counts against
goodput and in `failed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .asks import Answer, Json, engine_state
from .spread import six

SLOS = ("ttft", "tpot", "e2el")


@dataclass(slots=True, eq=False)
class Run:
    """`answers` in any order; `duration_s` from the first request sent to the last answer.
    `retokenized`: output tokens by the tokenizer, 0 where there is none. The last two are asked
    for after the run.
    """

    answers: Sequence[Answer]
    duration_s: float
    retokenized: int = 0
    server_info: Json | None = None

    @property
    def whole(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.error]


def rates(run: Run) -> Json:
    whole, seconds = run.whole, max(run.duration_s, 1e-9)
    total_in = sum(answer.prompt_tokens for answer in whole)
    total_out = sum(answer.said.output_tokens for answer in whole)
    return {
        "duration": run.duration_s,
        "completed": len(whole),
        "failed": len(run.answers) - len(whole),
        "total_input_tokens": total_in,
        "total_input_text_tokens": total_in,
        "total_input_vision_tokens": 0,
        "total_output_tokens": total_out,
        "total_output_tokens_retokenized": run.retokenized or total_out,
        "request_throughput": len(whole) / seconds,
        "input_throughput": total_in / seconds,
        "output_throughput": total_out / seconds,
        "total_throughput": (total_in + total_out) / seconds,
    }


def latencies(run: Run, e2e_name: str) -> Json:
    """`e2e_name`: what keys call the time of a whole answer."""
    whole = run.whole
    tpots = [tpot for answer in whole if (tpot := answer.tpot_s) is not None]
    found: Json = six(e2e_name, [answer.e2e_s for answer in whole])
    found |= six("ttft", [answer.ttft_s for answer in whole])
    found |= six("tpot", tpots)
    found |= six("itl", [gap for answer in whole for gap in answer.itls_s])
    return found


def load_figures(run: Run) -> Json:
    whole, seconds = run.whole, max(run.duration_s, 1e-9)
    return {
        "concurrency": sum(answer.e2e_s for answer in whole) / seconds,
        "accept_length": engine_state(run.server_info).get("avg_spec_accept_length"),
        "max_output_tokens_per_s": float(_busiest_second(whole)),
        "max_concurrent_requests": _most_at_once(whole),
    }


def goodput(run: Run, limits_ms: Mapping[str, float]) -> Json:
    """`limits_ms`: by names of `SLOS`. Shares are of all requests, failed ones too."""
    count, seconds = max(1, len(run.answers)), max(run.duration_s, 1e-9)
    met = [_met(answer, limits_ms) for answer in run.whole]
    good = sum(all(one.values()) for one in met)
    return {
        "goodput_slos_ms": dict(limits_ms),
        "request_goodput": good / seconds,
        "slo_attainment": good / count,
        "slo_attainment_by_metric": {
            name: sum(one[name] for one in met) / count for name in limits_ms
        },
    }


def cache_report(run: Run) -> Json:
    """What the server told, None for what it did not."""
    said = [answer.said for answer in run.whole]
    prompt = sum(answer.prompt_tokens for answer in run.whole)
    cached = _total(reading.cached for reading in said)
    tiers = [reading.tiers for reading in said if reading.tiers is not None]
    return {
        "cache_report": {
            "total_prompt_tokens": prompt,
            "total_cached_tokens": cached,
            "total_replayed_tokens": sum(reading.replayed for reading in said),
            "cache_hit_rate_pct": None if cached is None else 100 * cached / max(1, prompt),
            "device_cached_tokens": _total(tier.device for tier in tiers),
            "host_cached_tokens": _total(tier.host for tier in tiers),
            "storage_cached_tokens": _total(tier.storage for tier in tiers),
            "storage_backend": next((tier.backend for tier in tiers if tier.backend), None),
        }
    }


def details(run: Run) -> Json:
    """Of every request, failed ones too: a list each, in the order of `answers`."""
    answers = run.answers
    return {
        "input_lens": [answer.prompt_tokens for answer in answers],
        "output_lens": [answer.said.output_tokens for answer in answers],
        "ttfts": [0.0 if answer.error else answer.ttft_s for answer in answers],
        "itls": [[] if answer.error else answer.itls_s for answer in answers],
        "generated_texts": [answer.said.text for answer in answers],
        "errors": [answer.error for answer in answers],
        "cached_tokens": [answer.said.cached or 0 for answer in answers],
    }


def _total(values: Iterable[int | None]) -> int | None:
    """Of those that were told."""
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _met(answer: Answer, limits_ms: Mapping[str, float]) -> dict[str, bool]:
    times = {"ttft": answer.ttft_s, "tpot": answer.tpot_s or 0.0, "e2el": answer.e2e_s}
    return {name: 1000 * times[name] <= limit for name, limit in limits_ms.items()}


def _busiest_second(answers: Sequence[Answer]) -> int:
    """Tokens that came in one second of the run."""
    counts: Counter[int] = Counter()
    for answer in answers:
        for at_s, count in answer.said.arrivals:
            counts[int(answer.sent_s + at_s)] += count
    return max(counts.values(), default=0)


def _most_at_once(answers: Sequence[Answer]) -> int:
    edges = [(answer.sent_s, 1) for answer in answers]
    edges += [(answer.sent_s + answer.e2e_s, -1) for answer in answers]
    now = most = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most
