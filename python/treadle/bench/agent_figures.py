"""Turns that were played at one concurrency -> figures of a point.

Interactivity is what one user sees: 1 / percentile(mean ITL of a request), in tokens per second.
Throughput counts input and output tokens, cached input too, per device.

Rows are prompt tokens that were run: prompt - cached + replayed where a server tells the two
(`usage`, `meta_info`), `prompt_n` of llama.cpp's timings. Reprocessed rows are those above what a
cache that forgets nothing would have run: rows - (prompt - best), where `best` follows from the
trace alone, so it is the same for all servers. It is exact for prompts of ids; a chat's template
adds a few tokens that the trace does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from .agent_play import Sample
from .asks import Json
from .processes import Memory
from .spread import percentile

QUANTILES = (50, 75, 90, 95)
MAX_FAILED = 0.10  # more failed turns make a point invalid


@dataclass(frozen=True, slots=True)
class Run:
    """What a point was measured in. `seconds`: from the first request to the last answer; `memory`:
    of a server that was started here, at the end of the point."""

    server: str
    concurrency: int
    round: int
    seconds: float
    devices: int
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sums over whole answers; None where the server does not tell of its cache."""

    prompt: int
    output: int
    best: int
    cached: int | None
    replayed: int | None
    rows: int | None
    reprocessed: int | None

    @property
    def hit_rate(self) -> float | None:
        return None if self.cached is None else round(self.cached / max(1, self.prompt), 4)

    @property
    def best_hit_rate(self) -> float:
        return round(self.best / max(1, self.prompt), 4)


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds and tokens per second; interactivity is named by its percentile."""

    server: str
    concurrency: int
    round: int
    sessions: int
    turns: int
    failed: int
    first_error: str
    seconds: float
    tokens: Tokens
    hit_rate: float | None
    best_hit_rate: float
    ttft_s: dict[str, float]
    e2e_s: dict[str, float]
    mean_itl_s: dict[str, float]
    interactivity: dict[str, float]
    full_response_interactivity: dict[str, float]
    total_tps_per_device: float
    output_tps_per_device: float
    memory: Memory | None

    @property
    def is_valid(self) -> bool:
        return self.turns > 0 and self.failed <= MAX_FAILED * self.turns

    def as_row(self) -> Json:
        """Of a result."""
        return asdict(self) | {"is_valid": self.is_valid}

    def values(self) -> dict[str, float]:
        """What servers are compared by."""
        found = {
            "p50_ttft_s": self.ttft_s["p50"],
            "p90_ttft_s": self.ttft_s["p90"],
            "p90_e2e_s": self.e2e_s["p90"],
            "p50_interactivity": self.interactivity["p50"],
            "p90_interactivity": self.interactivity["p90"],
            "total_tps": self.total_tps_per_device,
            "output_tps": self.output_tps_per_device,
        }
        if self.tokens.rows is not None and self.tokens.reprocessed is not None:
            found |= {"rows": self.tokens.rows, "reprocessed_rows": self.tokens.reprocessed}
        if self.memory is not None:
            found |= {"rss_mib": self.memory.rss, "pss_mib": self.memory.pss}
        return found


def point(samples: Sequence[Sample], run: Run) -> Point:
    whole = [sample for sample in samples if not sample.answer.error]
    answers = [sample.answer for sample in whole]
    errors = [sample.answer.error for sample in samples if sample.answer.error]
    tokens = _tokens(whole)
    gaps = [sum(gap) / len(gap) for answer in answers if (gap := answer.itls_s)]
    per_token = [answer.e2e_s / max(1, answer.said.output_tokens) for answer in answers]
    device_s = max(run.seconds, 1e-9) * run.devices
    return Point(
        server=run.server,
        concurrency=run.concurrency,
        round=run.round,
        sessions=len({sample.session for sample in samples}),
        turns=len(samples),
        failed=len(errors),
        first_error=errors[0] if errors else "",
        seconds=round(run.seconds, 3),
        tokens=tokens,
        hit_rate=tokens.hit_rate,
        best_hit_rate=tokens.best_hit_rate,
        ttft_s=_quantiles([answer.ttft_s for answer in answers]),
        e2e_s=_quantiles([answer.e2e_s for answer in answers]),
        mean_itl_s=_quantiles(gaps),
        interactivity=_rates(gaps),
        full_response_interactivity=_rates(per_token),
        total_tps_per_device=round((tokens.prompt + tokens.output) / device_s, 2),
        output_tps_per_device=round(tokens.output / device_s, 2),
        memory=run.memory,
    )


def row(sample: Sample, run: Run) -> Json:
    """One turn, for the file of turns."""
    answer = sample.answer
    known: Json = {
        "server": run.server,
        "concurrency": run.concurrency,
        "round": run.round,
        "session": sample.session,
        "turn": sample.number,
        "sent_s": round(answer.sent_s, 3),
    }
    if answer.error:
        return known | {"error": answer.error}
    gaps = answer.itls_s
    return known | {
        "prompt": answer.prompt_tokens,
        "output": answer.said.output_tokens,
        "best": sample.best,
        "cached": answer.said.cached,
        "replayed": answer.said.replayed,
        "rows": answer.said.rows,
        "reprocessed": reprocessed(sample),
        "ttft_s": round(answer.ttft_s, 4),
        "mean_itl_s": round(sum(gaps) / len(gaps), 5) if gaps else None,
        "e2e_s": round(answer.e2e_s, 4),
    }


def reprocessed(sample: Sample) -> int | None:
    """Below 0 where a cache had more than the trace tells, such as a first token that all share."""
    rows = sample.answer.said.rows
    return None if rows is None else rows - (sample.answer.prompt_tokens - sample.best)


def _tokens(whole: Sequence[Sample]) -> Tokens:
    said = [sample.answer.said for sample in whole]
    prompt = sum(sample.answer.prompt_tokens for sample in whole)
    output, best = sum(one.output_tokens for one in said), sum(sample.best for sample in whole)
    if not said or any(one.cached is None for one in said):
        return Tokens(prompt, output, best, None, None, None, None)
    return Tokens(
        prompt,
        output,
        best,
        cached=sum(one.cached or 0 for one in said),
        replayed=sum(one.replayed for one in said),
        rows=sum(one.rows or 0 for one in said),
        reprocessed=sum(reprocessed(sample) or 0 for sample in whole),
    )


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    mean = sum(values) / len(values) if values else 0.0
    return {"mean": round(mean, 5)} | {f"p{q}": round(percentile(values, q), 5) for q in QUANTILES}


def _rates(seconds: Sequence[float]) -> dict[str, float]:
    """Of the percentiles of seconds per token, so P90 is what nine of ten requests exceed."""
    found = {f"p{q}": percentile(seconds, q) for q in QUANTILES}
    return {name: round(1 / value, 3) if value > 0 else 0.0 for name, value in found.items()}
