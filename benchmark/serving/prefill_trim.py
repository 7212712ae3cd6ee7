"""Cold prefill of a long prompt with a trimmed decoder and without: the ratio of their times.

    python -m benchmark.serving.prefill_trim [--prompt-tokens 4096] [--rounds 5] [--threads 2]
        [--out prefill_trim]

Run from the root of the repository, on a machine that does nothing else. Two servers of
DeepSeek-V4.1, equal but for `--enable-decoder-swa-bounded-replay`, are asked in turn for one token
after the same random prompt, cold: the prefix cache is off. A ratio is of two neighbours in time.
The checkpoint's context ends at 4,096 tokens, output included, so it is raised; the arithmetic of a
row does not depend on it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmark.environment import ROOT, Environment, describe_file, write_result
from benchmark.serving.servers import Server, stop_servers_on_term, treadle_spec

from treadle.bench.spread import Spread
from treadle.srt.checkpoint import load_model_config

PACKAGES = ("torch", "numpy")
MODEL = ROOT / "test" / "checkpoints" / "v41-mini"
FIRST_TEXT_ID = 300  # below are markers and single bytes
VARIANTS = {
    "whole": "--no-enable-decoder-swa-bounded-replay",
    "trimmed": "--enable-decoder-swa-bounded-replay",
}


def main() -> None:
    args = _arguments()
    stop_servers_on_term()
    environment = Environment.read(PACKAGES)
    times = measure(args)
    ratios = [a / b for a, b in zip(times["whole"], times["trimmed"], strict=True)]
    found = {f"{name}_s": Spread.of(values) for name, values in times.items()}
    found["ratio"] = Spread.of(ratios)
    for name, spread in found.items():
        print(f"{name:10} {spread.median:8.3f} ({spread.low:.3f} - {spread.high:.3f})")
    if args.out:
        settings = {
            "model": describe_file(args.model),
            "prompt_tokens": args.prompt_tokens,
            "rounds": args.rounds,
            "threads": args.threads,
            "variants": VARIANTS,
            "server_args": args.server_args,
        }
        content = {"environment": environment, "settings": settings, "seconds": found}
        print(write_result(args.out, content))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--prompt-tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--server-args", default="", help="further flags of both servers")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds to the first token by variant, one per round; the variants take turns to be first."""
    vocab_size = load_model_config(args.model).vocab_size
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(_server(args, flag)) for name, flag in VARIANTS.items()
        }
        for server in servers.values():
            server.wait_until_ready()
            server.generate(_prompt(vocab_size, 512, seed=0), 1)
        for turn in range(args.rounds):
            prompt = _prompt(vocab_size, args.prompt_tokens, seed=turn + 1)
            for name in list(VARIANTS)[:: 1 if turn % 2 == 0 else -1]:
                times[name].append(servers[name].generate(prompt, 1).ttft_s)
    return times


def _server(args: argparse.Namespace, flag: str) -> Server:
    override = json.dumps({"max_position_embeddings": 2 * args.prompt_tokens})
    flags = (
        *(flag, "--disable-radix-cache", "--json-model-override-args", override),
        *("--max-running-requests", "2", "--kv-cache-memory", "64M", *args.server_args.split()),
    )
    command = f"{sys.executable} -m treadle.launch_server"
    return Server(treadle_spec(command, args.model, args.threads, flags))


def _prompt(vocab_size: int, size: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(FIRST_TEXT_ID, vocab_size - 1), k=size)


if __name__ == "__main__":
    main()
