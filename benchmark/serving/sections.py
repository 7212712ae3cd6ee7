"""What is measured on a group of servers, in rounds: turns, prefill, decode, parallel requests.

Each step runs on every server before the next step begins, so that both see the same weather.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmark.serving.client import Reply
from benchmark.serving.conversation import REPLY_TOKENS, History, Texts, steps
from benchmark.serving.servers import Server

from treadle.bench.ratios import Sample

SETTLE_S = 0.3  # threads of the server before may still spin for a moment
WARM_TOKENS = 400  # fits the smallest context that a peer is given
PREFILL_TOKENS = 512
PREFILL_REPEATS = 3
DECODE_PROMPT, DECODE_TOKENS = 128, 128
PARALLEL, PARALLEL_PROMPT, PARALLEL_TOKENS = 8, 256, 64


@dataclass(slots=True)
class Bench:
    rounds: int
    seed: str
    samples: list[Sample] = field(default_factory=list)

    def texts(self, server: Server, section: str, number: int) -> Texts:
        return Texts(server.tokenize, server.prefix(), f"{self.seed}/{section}/{number}")

    def warm(self, server: Server) -> None:
        """Not measured: first touch of weights and buffers."""
        server.generate(self.texts(server, "warm", 0).fresh(WARM_TOKENS), 8)

    def note(
        self, section: str, step: str, at: tuple[Server, int], values: dict[str, float]
    ) -> None:
        server, number = at
        sample = Sample(section, step, server.name, number, values)
        self.samples.append(sample)
        shown = " ".join(f"{name}={value:.4g}" for name, value in values.items())
        print(f"round {number} {section} {step} {server.name}: {shown}", file=sys.stderr)

    def orders(self, servers: Sequence[Server]) -> list[list[Server]]:
        """The order of servers, per round: each is first in turn."""
        turns = [number % len(servers) for number in range(self.rounds)]
        return [[*servers[turn:], *servers[:turn]] for turn in turns]


def run_turns(bench: Bench, servers: Sequence[Server]) -> None:
    for number, order in enumerate(bench.orders(servers)):
        plan = steps(bench.texts(servers[0], "turns", number))
        histories = {server.name: History({}, {}) for server in servers}
        for step in plan:
            for server in order:
                history = histories[server.name]
                prompt = history.prompt(step)
                reply = _ask(server, prompt, REPLY_TOKENS)
                history.note(step, prompt, reply.token_ids)
                memory = server.memory()
                values = {
                    "ttft_s": reply.ttft_s,
                    "rows": float(reply.rows),
                    "prompt_tokens": float(len(prompt)),
                    "cached_tokens": float(reply.cached),
                    "decode_tps": reply.decode_rate or 0.0,
                    "rss_mib": memory.rss,
                    "pss_mib": memory.pss,
                }
                bench.note("turns", step.name, (server, number), values)


def run_prefill(bench: Bench, servers: Sequence[Server]) -> None:
    for number, order in enumerate(bench.orders(servers)):
        texts = bench.texts(servers[0], "prefill", number)
        for repeat in range(PREFILL_REPEATS):
            prompt = texts.fresh(PREFILL_TOKENS)
            for server in order:
                reply = _ask(server, prompt, 1)
                values = {"prompt_tps": len(prompt) / reply.ttft_s, "rows": float(reply.rows)}
                at = (server, number * PREFILL_REPEATS + repeat)
                bench.note("prefill", f"{PREFILL_TOKENS} tokens", at, values)


def run_decode(bench: Bench, servers: Sequence[Server]) -> None:
    for number, order in enumerate(bench.orders(servers)):
        prompt = bench.texts(servers[0], "decode", number).fresh(DECODE_PROMPT)
        for server in order:
            reply = _ask(server, prompt, DECODE_TOKENS)
            values = {"decode_tps": reply.decode_rate or 0.0, "ttft_s": reply.ttft_s}
            bench.note("decode", "batch 1", (server, number), values)


def run_parallel(bench: Bench, servers: Sequence[Server]) -> None:
    for number, order in enumerate(bench.orders(servers)):
        texts = bench.texts(servers[0], "parallel", number)
        prompts = [texts.fresh(PARALLEL_PROMPT) for _ in range(PARALLEL)]
        for server in order:
            time.sleep(SETTLE_S)
            values = _parallel(server, prompts)
            bench.note("parallel", f"{PARALLEL} requests", (server, number), values)


def _parallel(server: Server, prompts: list[list[int]]) -> dict[str, float]:
    start = time.perf_counter()

    def one(prompt: list[int]) -> list[float]:
        sent = time.perf_counter() - start
        return [sent + at for at in server.generate(prompt, PARALLEL_TOKENS).times_s]

    with ThreadPoolExecutor(len(prompts)) as pool:
        streams = list(pool.map(one, prompts))
    everything = [at for stream in streams for at in stream]
    begin = max(stream[0] for stream in streams)
    end = min(stream[-1] for stream in streams)
    shared = sum(begin < at <= end for at in everything)
    return {
        "total_tps": len(everything) / max(everything),
        "decode_tps": shared / (end - begin) if end > begin else 0.0,
        "mean_ttft_s": sum(stream[0] for stream in streams) / len(streams),
    }


def _ask(server: Server, prompt: list[int], max_tokens: int) -> Reply:
    time.sleep(SETTLE_S)
    return server.generate(prompt, max_tokens)


SECTIONS: dict[str, Callable[[Bench, Sequence[Server]], None]] = {
    "turns": run_turns,
    "prefill": run_prefill,
    "decode": run_decode,
    "parallel": run_parallel,
}
