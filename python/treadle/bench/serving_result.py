"""A run of `bench serving` as a line of JSON, under the keys of SGLang's client or of vLLM's."""

from __future__ import annotations

import argparse
import time

from . import figures
from .asks import Json
from .serving_run import Measured

SAME_IN_BOTH = (
    "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "request_throughput", "output_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
)  # fmt: skip
DETAILS_IN_BOTH = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")


def sglang_line(args: argparse.Namespace, run: Measured) -> Json:
    """In that client's order; `failed` is ours."""
    done = run.done
    result = {
        "tag": args.tag,
        "backend": run.target.backend,
        "dataset_name": args.dataset_name,
        "request_rate": _rate(args),
        "max_concurrency": args.max_concurrency,
        "sharegpt_output_len": args.sharegpt_output_len,
        "random_input_len": args.random_input_len,
        "random_output_len": args.random_output_len,
        "random_range_ratio": args.random_range_ratio,
        "server_info": done.server_info,
    }
    result |= (
        figures.rates(done) | figures.latencies(done, "e2e_latency") | figures.load_figures(done)
    )
    if args.goodput:
        result |= figures.goodput(done, dict(args.goodput))
    if args.cache_report:
        result |= figures.cache_report(done)
    return result | (figures.details(done) if args.output_details else {})


def vllm_line(args: argparse.Namespace, run: Measured) -> Json:
    """What that client saves; percentiles beside p99 are ours. Times of `start_times` count from
    the start of the run."""
    done = run.done
    told = figures.rates(done) | figures.load_figures(done)
    limits = dict(args.goodput)
    result = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": run.target.backend,
        "backend": run.target.backend,
        "label": args.tag,
        "model_id": run.target.model,
        "tokenizer_id": str(args.tokenizer or run.target.model),
        "num_prompts": len(done.answers),
        "request_rate": _rate(args),
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        **{key: told[key] for key in SAME_IN_BOTH},
        "total_token_throughput": told["total_throughput"],
        "request_goodput": figures.goodput(done, limits)["request_goodput"] if limits else None,
    }
    result |= figures.latencies(done, "e2el")
    return result | (_vllm_details(done) if args.output_details else {})


def _vllm_details(done: figures.Run) -> Json:
    told = figures.details(done)
    return {
        **{key: told[key] for key in DETAILS_IN_BOTH},
        "latencies": [0.0 if answer.error else answer.e2e_s for answer in done.answers],
        "start_times": [answer.sent_s for answer in done.answers],
    }


def _rate(args: argparse.Namespace) -> float | str:
    """JSON has no infinity."""
    if args.use_trace_timestamps:
        return "trace"
    rate: float = args.request_rate
    return "inf" if rate == float("inf") else rate
