"""C6: scores of continuations as an evaluation harness asks for them, on real weights.

What the server answers, cold and warm, equals a computation that feeds the tokens one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from test.driver import Driver
from test.e2e.conftest import StartServer
from test.e2e.server import Server
from test.loading import load_runner
from treadle.srt.checkpoint import resolve_path

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "demo:smollm2-135m"
CONTEXT = "The weaver sat at the loom. The capital city of France is"
CONTINUATIONS = (" Paris", " Bordeaux", " a loom")


def encode(server: Server, text: str) -> list[int]:
    answer = httpx.post(server.url + "/tokenize", json={"prompt": text}, timeout=60).json()
    tokens: list[int] = answer["tokens"]
    return tokens


def echo(server: Server, prompts: list[list[int]], max_tokens: int) -> list[dict[str, Any]]:
    body = {"model": "m", "prompt": prompts, "temperature": 0, "max_tokens": max_tokens,
            "logprobs": 1, "seed": 1234, "echo": True}  # fmt: skip
    response = httpx.post(server.url + "/v1/completions", json=body, timeout=240)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


def fed_one_by_one(path: Path, prompt: list[int]) -> list[float]:
    driver = Driver(load_runner(path, quantization="q8_0"))
    logits = driver.cold(1, prompt[:1])
    found = []
    for token in prompt[1:]:
        found.append(float(torch.log_softmax(logits.double(), 0)[token]))
        logits = driver.decode(1, token)
    return found


def test_loglikelihoods_equal_a_token_by_token_computation_cold_and_warm(serve: StartServer):
    server = serve(MODEL, "--kv-cache-memory", "256M", "--chunked-prefill-size", "64")
    context = encode(server, CONTEXT)
    prompts = [context + encode(server, text) for text in CONTINUATIONS]
    cold = echo(server, prompts, 1)
    warm = echo(server, prompts, 1)
    alone = [echo(server, [prompt], 0)[0] for prompt in prompts]
    sums = []
    for prompt, first, second, single in zip(prompts, cold, warm, alone, strict=True):
        logprobs = first["logprobs"]["token_logprobs"]
        assert logprobs[0] is None
        assert len(logprobs) == len(prompt) + 1
        assert first["logprobs"] == second["logprobs"]
        assert single["logprobs"]["token_logprobs"] == logprobs[:-1]
        assert logprobs[1:-1] == fed_one_by_one(resolve_path(MODEL), prompt)
        sums.append(sum(logprobs[len(context) : -1]))
    assert sums[0] == max(sums)
