"""Perplexity of a text through logprobs of prompts, of any server that echoes them.

    python -m benchmark.quality.perplexity --file TEXT --url http://127.0.0.1:30000 [--out NAME]

The text is cut into pieces of `--characters`, each a prompt of its own with `echo` and `logprobs`
on /v1/completions, and nothing is generated. A piece's first token has no logprob and is not
counted. Scores do not depend on a server's prefix cache, or its cache is wrong: `--twice` asks
again and tells the largest difference.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmark.environment import Environment, describe_file, write_result
from benchmark.quality.accuracy import Endpoint


def pieces(text: str, size: int, count: int) -> list[str]:
    """The first `count` of `size` characters."""
    return [text[at : at + size] for at in range(0, min(len(text), size * count), size)]


def score(endpoint: Endpoint, piece: str) -> list[float]:
    """Natural logs of the probabilities of its tokens from the second on."""
    found = endpoint.complete(piece, max_tokens=0, echo=True, logprobs=0)
    values = found["choices"][0]["logprobs"]["token_logprobs"]
    return [float(value) for value in values[1:]]


def main() -> None:
    args = _arguments()
    environment = Environment.read(())
    endpoint = Endpoint(args.url, args.model, args.api_key)
    cut = pieces(args.file.read_text(), args.characters, args.pieces)
    found = _scores(endpoint, cut, args.concurrency)
    logs = [value for piece in found for value in piece]
    loss = -statistics.fmean(logs)
    losses = [-statistics.fmean(piece) for piece in found if piece]
    error = statistics.stdev(losses) / math.sqrt(len(losses)) if len(losses) > 1 else 0.0
    print(f"loss {loss:.4f} nats (standard error over pieces {error:.4f})")
    print(f"perplexity {math.exp(loss):.3f}, {len(logs)} tokens in {len(cut)} pieces")
    difference = None
    if args.twice:
        again = [value for piece in _scores(endpoint, cut, 1) for value in piece]
        difference = max(abs(a - b) for a, b in zip(logs, again, strict=True))
        print(f"asked again: largest difference of a logprob {difference:.3g}")
    if args.out:
        content = {
            "environment": environment,
            "file": describe_file(args.file),
            "tokens": len(logs),
            "loss": loss,
            "standard_error": error,
            "perplexity": math.exp(loss),
            "asked_again_difference": difference,
            "losses": losses,
        }
        print(write_result(args.out, content).name)


def _scores(endpoint: Endpoint, cut: Sequence[str], concurrency: int) -> list[list[float]]:
    with ThreadPoolExecutor(concurrency) as threads:
        return list(threads.map(lambda piece: score(endpoint, piece), cut))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--file", type=Path, required=True, help="a text in UTF-8")
    add("--url", default="http://127.0.0.1:30000", help="of the server, without /v1")
    add("--model", default="default")
    add("--api-key", default="")
    add("--characters", type=int, default=4000, help="of a piece")
    add("--pieces", type=int, default=32, help="at most")
    add("--concurrency", type=int, default=4)
    add("--twice", action="store_true", help="ask again, one at a time, and compare")
    add("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
