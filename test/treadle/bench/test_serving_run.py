"""A run against a fake server: what is sent, what is counted, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from test.treadle.bench.fake_server import FakeServer
from treadle.bench import serving_run
from treadle.bench.serving_flags import parser
from treadle.bench.serving_result import sglang_line

SMALL = "--num-prompts 6 --random-input-len 20 --random-output-len 4 --disable-tqdm"


async def run(server: FakeServer, flags: str) -> dict[str, Any]:
    async with server.running() as url:
        args = parser().parse_args([*flags.split(), "--base-url", url])
        return sglang_line(args, await serving_run.run(args))


@pytest.mark.parametrize(
    ("owner", "backend", "path"),
    [("sglang", "sglang", "/generate"), ("llamacpp", "llama.cpp", "/completion"),
     ("somebody", "openai", "/v1/completions")],
)  # fmt: skip
async def test_backend_follows_from_who_serves_the_model(owner: str, backend: str, path: str):
    server = FakeServer(owner)
    result = await run(server, SMALL)
    assert result["backend"] == backend
    assert {asked for asked, _, _ in server.asked} == {path}


@pytest.mark.parametrize("more", ["", "--disable-stream"])
@pytest.mark.parametrize("backend", ["sglang", "llama.cpp", "sglang-oai", "sglang-oai-chat"])
async def test_every_backend_counts_the_same(backend: str, more: str):
    server = FakeServer("llamacpp" if backend == "llama.cpp" else "sglang")
    flags = f"{SMALL} --backend {backend} --random-range-ratio 1 {more}"
    result = await run(server, f"{flags} --warmup-requests 0 --output-details")
    assert result["completed"] == 6
    assert result["total_output_tokens"] == result["total_output_tokens_retokenized"] == 24
    role = backend.endswith("chat")
    assert result["input_lens"] == [20 + role] * 6


async def test_a_failed_request_is_counted_and_measured_nowhere():
    server = FakeServer(fails_after=4)
    flags = f"{SMALL} --warmup-requests 0 --max-concurrency 1 --output-details"
    result = await run(server, f"{flags} --goodput ttft:60000")
    assert (result["completed"], result["failed"]) == (4, 2)
    assert [bool(error) for error in result["errors"]] == [False] * 4 + [True] * 2
    assert "503" in result["errors"][-1]
    assert result["slo_attainment"] == pytest.approx(4 / 6)


async def test_cache_report_sums_what_the_server_says():
    gsp = "--gsp-num-groups 2 --gsp-prompts-per-group 3 --gsp-system-prompt-len 30"
    flags = f"--dataset-name generated-shared-prefix {gsp} --gsp-question-len 5 --gsp-output-len 2"
    more = "--disable-tqdm --max-concurrency 1 --cache-report --tokenize-prompt"
    server = FakeServer(replayed=7)
    result = await run(server, f"{flags} {more}")
    report = result["cache_report"]
    assert report["total_prompt_tokens"] == 2 * 3 * 35
    assert report["total_cached_tokens"] >= 2 * 2 * 30
    assert report["total_replayed_tokens"] >= 4 * 7
    assert report["cache_hit_rate_pct"] == pytest.approx(
        100 * report["total_cached_tokens"] / report["total_prompt_tokens"]
    )


async def test_a_warm_up_that_fails_ends_the_run():
    with pytest.raises(ValueError, match="the warm-up request failed: .*503"):
        await run(FakeServer(fails_after=0), SMALL)


async def test_texts_may_be_sent_as_messages():
    server = FakeServer()
    result = await run(server, f"{SMALL} --apply-chat-template")
    assert result["backend"] == "sglang-oai-chat" and result["completed"] == 6
    assert all(body["messages"] for body in server.bodies)


async def test_cache_is_emptied_after_the_warm_up():
    server = FakeServer()
    await run(server, f"{SMALL} --flush-cache")
    assert server.flushed == 1 and len(server.asked) == 7


async def test_requests_carry_what_the_flags_say():
    server = FakeServer()
    flags = f"{SMALL} --temperature 0.5 --top-p 0.9 --disable-ignore-eos --return-logprob"
    more = "--top-logprobs-num 2 --lora-name a --header x-one=1"
    await run(server, f'{flags} {more} --extra-request-body {{"priority":3}}')
    _, headers, body = server.asked[-1]
    sampling = body["sampling_params"]
    assert (sampling["temperature"], sampling["top_p"]) == (0.5, 0.9)
    assert sampling["ignore_eos"] is False
    assert body["return_logprob"] and body["top_logprobs_num"] == 2
    assert body["lora_path"] == "a" and body["priority"] == 3 and headers["x-one"] == "1"


async def test_embeddings_are_measured_without_output():
    flags = f"{SMALL} --backend sglang-embedding --random-range-ratio 1 --goodput e2el:60000"
    result = await run(FakeServer(), flags)
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (6, 0, 0)
    assert result["total_input_tokens"] == 6 * 20 and result["slo_attainment"] == 1
    assert result["mean_ttft_ms"] == result["mean_e2e_latency_ms"] > result["mean_itl_ms"] == 0
    with pytest.raises(ValueError, match="has no chat"):
        await run(FakeServer(), f"{flags} --apply-chat-template")


async def test_zipf_needs_its_exponent_and_only_zipf_has_one():
    gsp = f"{SMALL} --dataset-name generated-shared-prefix"
    for flags in ("--gsp-group-distribution zipf", "--gsp-zipf-alpha 1"):
        with pytest.raises(ValueError, match="go together"):
            await run(FakeServer(), f"{gsp} {flags}")


async def test_without_a_tokenizer_words_count_as_tokens():
    server = FakeServer(has_tokenizer=False)
    result = await run(server, f"{SMALL} --random-range-ratio 1 --warmup-requests 0")
    assert result["total_input_tokens"] == 6 * 20
    with pytest.raises(ValueError, match="--tokenizer"):
        await run(server, f"{SMALL} --dataset-name random-ids")
