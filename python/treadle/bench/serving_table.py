"""The result of `bench serving` as a table for a terminal."""

from __future__ import annotations

from .asks import Json

WIDTH = 56
COUNTS = (
    ("Requests completed", "completed"),
    ("Requests failed", "failed"),
    ("Duration, s", "duration"),
    ("Input tokens", "total_input_tokens"),
    ("Output tokens", "total_output_tokens"),
    ("Requests per second", "request_throughput"),
    ("Input tokens per second", "input_throughput"),
    ("Output tokens per second", "output_throughput"),
    ("All tokens per second", "total_throughput"),
    ("Output tokens in the busiest second", "max_output_tokens_per_s"),
    ("Requests at once, mean", "concurrency"),
    ("Requests at once, most", "max_concurrent_requests"),
    ("Tokens accepted per step", "accept_length"),
)
CACHE = (
    ("Cached prompt tokens, %", "cache_hit_rate_pct"),
    ("Replayed prompt tokens", "total_replayed_tokens"),
)
LATENCIES = (("E2E", "e2e_latency"), ("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"))
COLUMNS = ("mean", "median", "p90", "p95", "p99")


def table(result: Json) -> str:
    lines = [_title(f"{result['backend']}, {result['dataset_name']}")]
    lines += [_row(label, result[key]) for label, key in COUNTS if result[key] is not None]
    if report := result.get("cache_report"):
        lines += [_row(label, report[key]) for label, key in CACHE if report[key] is not None]
    if "slo_attainment" in result:
        lines.append(_row("Requests within limits, %", 100 * result["slo_attainment"]))
        lines.append(_row("Requests within limits per second", result["request_goodput"]))
    lines.append(_title("milliseconds"))
    lines.append(" " * 6 + "".join(f"{name:>10}" for name in COLUMNS))
    for label, name in LATENCIES:
        cells = "".join(f"{result[f'{column}_{name}_ms']:>10.2f}" for column in COLUMNS)
        lines.append(f"{label:6}{cells}")
    return "\n".join(lines) + "\n"


def _title(text: str) -> str:
    return f" {text} ".center(WIDTH, "-")


def _row(label: str, value: float) -> str:
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f"{label:38}{shown:>18}"
