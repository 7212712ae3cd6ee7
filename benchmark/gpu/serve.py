"""A model of random weights through the real server: three processes, HTTP and all."""

from __future__ import annotations

import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from benchmark.environment import ROOT
from benchmark.gpu.load import MODELS
from benchmark.serving.client import TreadleWire, post
from benchmark.serving.servers import Server, Spec

TOKENIZER = ROOT / "test" / "checkpoints" / "v41-mini"
TOKENIZER_IDS = 8192
PROMPT, TOKENS = 512, 256
CONCURRENT = 64
LONG = 8192


def spec(name: str, *more: str) -> Spec:
    """A server of a folder of `models/`; `more` flags beside the usual ones."""
    flags = ["--device", "cuda", "--load-format", "dummy", "--grammar-backend", "none"]
    flags += ["--tokenizer-path", str(TOKENIZER), "--context-length", "16384"]
    flags += ["--max-running-requests", str(CONCURRENT), *more]
    argv, environ = command_of(str(MODELS / name), *flags)
    return Spec(name, argv, environ, TreadleWire(), "/ready")


def command_of(model: str, *flags: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """What starts our server, and its environment."""
    argv = [sys.executable, "-m", "treadle.launch_server", "--model-path", model, *flags]
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    return (*argv, "--port", "{port}"), {"PYTHONPATH": path}


def measure(name: str) -> dict[str, object]:
    ids = np.random.default_rng(1)

    def prompt(length: int) -> list[int]:
        return [int(x) for x in ids.integers(0, TOKENIZER_IDS, length)]

    began = time.monotonic()
    with Server(spec(name)) as server:
        server.wait_until_ready()
        start_s = time.monotonic() - began
        server.generate(prompt(PROMPT), 16)
        return {
            "start_s": start_s,
            "alone": _alone(server, [prompt(PROMPT) for _ in range(3)]),
            "together": _together(server, [prompt(PROMPT) for _ in range(CONCURRENT)]),
            "prefill": _prefill(server, [prompt(LONG) for _ in range(4)]),
        }


def _alone(server: Server, prompts: list[list[int]]) -> dict[str, float]:
    replies = [server.generate(prompt, TOKENS) for prompt in prompts]
    rates = [x.decode_rate or 0.0 for x in replies]
    rate = statistics.median(rates)
    return {
        "prompt_tokens": PROMPT,
        "ttft_ms": statistics.median(x.ttft_s for x in replies) * 1e3,
        "token_ms": 1e3 / rate,
        "tokens_per_s": rate,
        "spread_tokens_per_s": max(rates) - min(rates),
    }


def _together(server: Server, prompts: list[list[int]]) -> dict[str, float]:
    """Answers in one piece: the client would be the bottleneck of so many streams."""
    sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}

    def ask(prompt: list[int]) -> None:
        post(server.port, "/generate", {"input_ids": prompt, "sampling_params": sampling})

    with ThreadPoolExecutor(len(prompts)) as threads:
        list(threads.map(ask, [x[:16] for x in prompts]))
        began = time.perf_counter()
        list(threads.map(ask, prompts))
        seconds = time.perf_counter() - began
    total = len(prompts) * TOKENS
    return {"requests": len(prompts), "seconds": seconds, "tokens_per_s": total / seconds}


def _prefill(server: Server, prompts: list[list[int]]) -> dict[str, float]:
    times = [server.generate(prompt, 1).ttft_s for prompt in prompts][1:]
    median = statistics.median(times)
    return {"prompt_tokens": LONG, "ttft_ms": median * 1e3, "tokens_per_s": LONG / median}
