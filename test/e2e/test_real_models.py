"""Real weights through the whole server: the README's examples, warm turns, batching."""

from __future__ import annotations

import random

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from test.e2e.conftest import StartServer
from test.e2e.native import generate, greedy, logprobs, source_ids, usage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

GEMMA, SMOLLM = "demo:gemma3-270m", "demo:smollm2-135m"
MEMORY = ("--kv-cache-memory", "512M")
WINDOW, SLOPE = 64, 8  # cut, so that a replay is short beside a prompt that takes a second
CUT = ("--json-model-override-args", f'{{"gemma3.attention.sliding_window": {WINDOW}}}',
       "--swa-replay-slope", str(SLOPE))  # fmt: skip
LONGEST_REPLAY = WINDOW + SLOPE * 14
REPLAYING = (*MEMORY, *CUT, "--max-warm-windows", "0")  # else the window is there already


def test_warm_turn_of_a_hybrid_model_replays_a_bounded_number_of_rows(serve: StartServer):
    server = serve(GEMMA, *REPLAYING)
    prompt = source_ids(server, 300)
    first = generate(server, input_ids=prompt, sampling_params=greedy(24))
    assert usage(first) == (300, 0, 0)
    output = first["output_ids"]
    assert isinstance(output, list)
    turn = [*prompt, *output, *prompt[100:200]]
    warm = generate(server, input_ids=turn, sampling_params=greedy(24))
    n, cached, replayed = usage(warm)
    # 300 + 24 tokens, the last of which was sampled but never run, in pages of 16
    assert (n, cached, replayed) == (424, 320, LONGEST_REPLAY)
    httpx.post(server.url + "/flush_cache?timeout=60", timeout=120).raise_for_status()
    cold = generate(server, input_ids=turn, sampling_params=greedy(24))
    assert usage(cold) == (424, 0, 0)
    fork = generate(server, input_ids=turn[:250] + prompt[:100], sampling_params=greedy(4))
    assert usage(fork)[1] == 240
    off = generate(server, input_ids=turn, swa_replay="off", sampling_params=greedy(24))
    assert usage(off) == (424, 0, 0)
    assert off["output_ids"] == cold["output_ids"]


def test_next_turn_of_a_hybrid_model_replays_nothing_and_equals_cold(serve: StartServer):
    """Window donation, to the bit: also where a hit would be approximate."""
    server = serve(GEMMA, *MEMORY, *CUT)
    prompt = source_ids(server, 300)
    first = generate(server, input_ids=prompt, sampling_params=greedy(24))
    output = first["output_ids"]
    assert isinstance(output, list)
    turn = [*prompt, *output, *prompt[100:200]]
    asked = {"input_ids": turn, "return_logprob": True, "sampling_params": greedy(8)}
    warm = generate(server, **asked)
    assert usage(warm) == (424, 320, 0)
    cold = generate(server, swa_replay="off", **asked)
    assert (warm["output_ids"], logprobs(warm)) == (cold["output_ids"], logprobs(cold))


@pytest.mark.long
def test_batching_and_chunks_do_not_change_a_greedy_token(serve: StartServer):
    """int8 products and attention give a row the same bits whatever else is in the step."""
    server = serve(GEMMA, *MEMORY, "--no-swa-bounded-replay", "--chunked-prefill-size", "256")
    rng = random.Random(3)
    ids = source_ids(server, 3000)
    prompts = []
    for _ in range(6):
        start = rng.randint(0, 2000)
        prompts.append(ids[start : start + rng.randint(20, 600)])
    alone = [
        generate(server, input_ids=p, sampling_params=greedy(12))["output_ids"] for p in prompts
    ]
    together = httpx.post(
        server.url + "/generate",
        json={"input_ids": prompts, "sampling_params": greedy(12)},
        timeout=240,
    ).json()
    assert [x["output_ids"] for x in together] == alone


def test_window_free_model_hits_exactly_and_the_openai_sdk_streams(serve: StartServer):
    server = serve(SMOLLM, *MEMORY)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    question: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "Name the capital city of France."}
    ]

    def ask() -> tuple[str, openai.types.CompletionUsage]:
        stream = client.chat.completions.create(
            model="any",
            messages=question,
            max_tokens=16,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, usage = "", None
        for chunk in stream:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
        assert usage is not None
        return text, usage

    text, cold = ask()
    again, warm = ask()
    assert "Paris" in text
    assert again == text
    assert cold.prompt_tokens_details is not None
    assert warm.prompt_tokens_details is not None
    assert cold.prompt_tokens_details.cached_tokens == 0
    assert warm.prompt_tokens_details.cached_tokens == 32
    assert warm.prompt_tokens_details.replayed_tokens == 0  # type: ignore[attr-defined]
    client.close()
