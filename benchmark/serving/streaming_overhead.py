"""What a streamed token costs in the API process, with an engine that answers at once.

    python -m benchmark.serving.streaming_overhead --rounds 5 --out streaming_overhead

The real API process (tokenizer and HTTP server) on one core; scheduler and worker are replaced by
this process, which sends a step of one token for each of `--connections` streams as soon as all but
`--ahead` steps have reached the clients. With `--ahead 1` every token travels alone, which is the
dearest; a deep queue lets events share writes, as when the engine outruns the API.

The figure is tokens per second of the process's CPU time, which a busy machine changes little;
tokens per second of wall time stand beside it.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import dataclass

from benchmark.environment import Environment, write_result
from benchmark.serving.api_process import ApiProcess, Streams

from treadle.bench.spread import Spread
from treadle.srt.checkpoint import resolve_path
from treadle.srt.messages import Finish, RequestId, RequestOutput, TokenOutput, Usage
from treadle.srt.tokenizer.encode import Tokenizer

PACKAGES = ("uvicorn", "uvloop", "httptools", "starlette", "orjson", "pyzmq", "prometheus-client")
PROMPT = "The thread runs over the loom."
CHAT: dict[str, object] = {"messages": [{"role": "user", "content": PROMPT}]}
ROUTES: dict[str, dict[str, object]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"prompt": PROMPT},
    "/v1/messages": CHAT,
    "/generate": {"text": PROMPT},
}
WARM_STEPS = 10


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens per second of CPU time of the API process, and of wall time."""

    per_cpu_s: float
    per_s: float


def body_of(path: str, tokens: int) -> dict[str, object]:
    if path == "/generate":
        return {**ROUTES[path], "stream": True, "sampling_params": {"max_new_tokens": tokens}}
    return {"model": "any", **ROUTES[path], "stream": True, "max_tokens": tokens}


def plain_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that are whole characters, so that each gives an event of its own."""
    texts = ((i, tokenizer.token_text(i)) for i in range(tokenizer.vocab_size))
    return [i for i, text in texts if text and "\ufffd" not in text and not tokenizer.is_special(i)]


class Engine:
    """Sends steps of one token for each request."""

    def __init__(self, api: ApiProcess, ids: list[int], count: int) -> None:
        self._api = api
        self._rng = random.Random(1)
        self._ids = ids
        self._rids = [request.rid for request in api.requests(count)]
        self._steps = 0

    def step(self, finish: Finish | None = None) -> None:
        self._steps += 1
        chosen = self._rng.choices(self._ids, k=len(self._rids))
        outputs = [self._output(*pair, finish) for pair in zip(self._rids, chosen, strict=True)]
        self._api.send(TokenOutput(tuple(outputs)))

    def _output(self, rid: RequestId, token_id: int, finish: Finish | None) -> RequestOutput:
        return RequestOutput(rid, (token_id,), Usage(12, self._steps, 0, 0), finish)


def measure(api: ApiProcess, ids: list[int], path: str, args: argparse.Namespace) -> Run:
    count, steps, ahead = args.connections, args.steps, args.ahead
    streams = Streams(api.port, count, path, body_of(path, 2 * (steps + WARM_STEPS)))
    try:
        engine = Engine(api, ids, count)
        engine.step()
        streams.settle(count)
        begin = streams.num_events
        for i in range(WARM_STEPS):
            engine.step()
            streams.wait(begin + (i + 1) * count)
        begin += WARM_STEPS * count
        cpu_s, wall_s = api.cpu_s, time.perf_counter()
        for i in range(steps):
            engine.step()
            streams.wait(begin + (i + 1 - ahead + 1) * count)
        streams.wait(begin + steps * count)
        cpu_s, wall_s = api.cpu_s - cpu_s, time.perf_counter() - wall_s
        engine.step(Finish("length"))
        streams.settle(streams.num_events + count)
    finally:
        streams.close()
    return Run(steps * count / cpu_s, steps * count / wall_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:smollm2-135m", help="its tokenizer is used")
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100, help="tokens per stream and run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ahead", type=int, default=1, help="steps on their way at once")
    parser.add_argument("--paths", nargs="*", default=list(ROUTES))
    parser.add_argument("--core", type=int, default=-1, help="of the API process; -1: the last")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    args = parser.parse_args()
    environment = Environment.read(PACKAGES)
    ids = plain_ids(Tokenizer.load(resolve_path(args.model)))
    cores = sorted(os.sched_getaffinity(0))
    runs: dict[str, list[Run]] = {path: [] for path in args.paths}
    with ApiProcess(args.model, [cores[args.core]]) as api:
        for _ in range(args.rounds):
            for path in args.paths:
                runs[path].append(measure(api, ids, path, args))
                print(f"{path}: {runs[path][-1].per_cpu_s:,.0f} tokens per CPU second", flush=True)
    results = {
        path: {
            "tokens_per_cpu_s": Spread.of([run.per_cpu_s for run in found]),
            "tokens_per_s": Spread.of([run.per_s for run in found]),
        }
        for path, found in runs.items()
    }
    for path, found in results.items():
        cpu, wall = found["tokens_per_cpu_s"], found["tokens_per_s"]
        print(
            f"{path}: {cpu.median:,.0f} ({cpu.low:,.0f} - {cpu.high:,.0f}) tokens per CPU second, "
            f"{wall.median:,.0f} per second"
        )
    if args.out:
        write_result(
            args.out, {"environment": environment, "settings": vars(args), "routes": results}
        )


if __name__ == "__main__":
    main()
