"""Keys of the result: those of SGLang's client, or of vLLM's."""

from __future__ import annotations

import orjson

from test.treadle.bench.fake_server import FakeServer
from test.treadle.bench.test_serving_run import SMALL, run
from treadle.bench import serving_run
from treadle.bench.serving_flags import parser
from treadle.bench.serving_result import vllm_line

KINDS = ("mean", "median", "std", "p90", "p95", "p99")


def latencies(e2e_name: str) -> set[str]:
    names = (e2e_name, "ttft", "tpot", "itl")
    return {f"{kind}_{name}_ms" for name in names for kind in KINDS}


KEYS = """
tag backend dataset_name request_rate max_concurrency sharegpt_output_len random_input_len
random_output_len random_range_ratio server_info duration completed total_input_tokens
total_input_text_tokens total_input_vision_tokens total_output_tokens
total_output_tokens_retokenized request_throughput input_throughput output_throughput
total_throughput concurrency accept_length max_output_tokens_per_s max_concurrent_requests
"""
GOODPUT = "goodput_slos_ms request_goodput slo_attainment slo_attainment_by_metric"
CACHE = """
total_prompt_tokens total_cached_tokens cache_hit_rate_pct device_cached_tokens host_cached_tokens
storage_cached_tokens storage_backend
"""
DETAILS = "input_lens output_lens ttfts itls generated_texts errors cached_tokens"
VLLM = """
date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness
max_concurrency duration completed failed total_input_tokens total_output_tokens request_throughput
request_goodput output_throughput total_token_throughput max_output_tokens_per_s
max_concurrent_requests
"""
VLLM_DETAILS = "input_lens output_lens ttfts itls latencies start_times generated_texts errors"


async def test_result_has_the_keys_of_sglangs_client():
    keys = {*KEYS.split(), *latencies("e2e_latency"), "failed"}  # the last is ours
    assert set(await run(FakeServer(), SMALL)) == keys
    more = "--goodput ttft:1000 e2el:5000 --cache-report --output-details"
    result = await run(FakeServer(), f"{SMALL} {more}")
    assert set(result) == keys | {*GOODPUT.split(), "cache_report", *DETAILS.split()}
    assert set(result["cache_report"]) == {*CACHE.split(), "total_replayed_tokens"}
    assert all(len(result[key]) == 6 for key in DETAILS.split())
    orjson.dumps(result)


async def test_result_may_have_the_keys_of_vllms_client():
    flags = f"{SMALL} --goodput e2el:60000 --output-details --tag a --request-rate 1000"
    server = FakeServer(fails_after=5)
    async with server.running() as url:
        args = parser().parse_args([*flags.split(), "--base-url", url])
        result = vllm_line(args, await serving_run.run(args))
    assert set(result) == {*VLLM.split(), *latencies("e2el"), *VLLM_DETAILS.split()}
    assert (result["num_prompts"], result["completed"], result["failed"]) == (6, 4, 2)
    assert (result["label"], result["model_id"], result["request_rate"]) == ("a", "fake", 1000)
    assert result["request_goodput"] == result["request_throughput"] > 0
    assert all(len(result[key]) == 6 for key in VLLM_DETAILS.split())
    orjson.dumps(result)
