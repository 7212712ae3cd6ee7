"""Flags of `bench serving`, named as those of SGLang's client, and the datasets that they describe.

What this client has beside that one: `--burstiness`, `--length-scale`, the datasets `jsonl` and
`random-ids` as ids for every backend that takes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import orjson

from .figures import SLOS
from .wires import WIRES

DATASETS = (
    "random", "random-ids", "generated-shared-prefix", "sharegpt", "custom", "openai", "jsonl",
    "mooncake", "agentic-trace",
)  # fmt: skip
FROM_FILES = frozenset(DATASETS[3:])


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m treadle.bench serving", description="Load a server and time its answers."
    )
    _target(found)
    _datasets(found)
    _made_up(found)
    _load(found)
    _requests(found)
    _output(found)
    return found


def _target(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("server").add_argument
    add("--backend", choices=list(WIRES), help="default: what /v1/models says that serves")
    add("--base-url", help="goes before --host and --port")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=30000)
    add("--model", default="", help="default: the server's")
    add("--served-model-name", default="", help="the name in requests, where --model is a path")
    add("--tokenizer", type=Path, help="tokenizer.json or its folder; default: ask the server")
    add("--header", nargs="*", default=[], metavar="K=V", help="sent with every request")
    add("--ready-check-timeout-sec", type=float, default=60.0)


def _datasets(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("data; nothing is downloaded").add_argument
    add("--dataset-name", choices=DATASETS, default="random")
    add("--dataset-path", type=Path)
    add("--dataset-offset", type=_count, default=0, help="entries of the file to pass over")
    add("--num-prompts", type=_positive, default=1000)
    add("--sharegpt-output-len", type=_positive, help="default: the length of the file's answer")
    add("--sharegpt-context-len", type=_positive, help="longer ones are left out")
    add("--mooncake-workload", choices=["conversation", "synthetic", "toolagent"],
        default="conversation", help="names the file where no path is given")  # fmt: skip
    add("--mooncake-slowdown-factor", type=_above_zero, default=1.0)
    add("--use-trace-timestamps", action="store_true", help="requests begin when the trace says")
    add(
        "--length-scale", type=_above_zero, default=1.0, help="factor of a Mooncake trace's lengths"
    )
    add("--agentic-max-turns", type=_count, default=0, help="of a conversation; 0: all")
    add("--tokenize-prompt", action="store_true", help="send token ids instead of text")
    add("--apply-chat-template", action="store_true", help="send prompts to the chat route")
    add("--seed", type=int, default=42)


def _made_up(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("random and shared prefixes, lengths in tokens").add_argument
    add("--random-input-len", type=_positive, default=1024)
    add("--random-output-len", type=_positive, default=1024)
    add("--random-range-ratio", type=_share, default=0.0, help="shortest by longest; 0: from 1")
    add("--gsp-num-groups", type=_positive, default=64)
    add("--gsp-prompts-per-group", type=_positive, default=16)
    add("--gsp-system-prompt-len", type=_positive, default=2048)
    add("--gsp-question-len", type=_positive, default=128)
    add("--gsp-output-len", type=_positive, default=256)
    add("--gsp-num-turns", type=_positive, default=1)
    add("--gsp-send-routing-key", action="store_true", help="X-SMG-Routing-Key: one per group")


def _load(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("load").add_argument
    add("--request-rate", type=_above_zero, default=float("inf"), help="per second, or inf")
    add("--burstiness", type=_above_zero, default=1.0, help="1: Poisson; else a gamma process")
    add("--max-concurrency", type=_positive, help="requests at once")
    add("--warmup-requests", type=_count, default=1, help="not measured")
    add("--flush-cache", action="store_true", help="empty the server's cache before the run")
    add("--flush-cache-timeout", type=_above_zero, default=60.0)


def _requests(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("requests").add_argument
    add("--disable-stream", action="store_true")
    add("--disable-ignore-eos", action="store_true")
    add("--temperature", type=float, default=0.0)
    add("--top-p", type=float, default=1.0)
    add("--extra-request-body", type=_object, default={}, metavar="JSON")
    add("--return-logprob", action="store_true")
    add("--top-logprobs-num", type=_count, default=0)
    add("--logprob-start-len", type=int, default=-1)
    add("--lora-name", default="")


def _output(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("result").add_argument
    add("--cache-report", action="store_true", help="cached tokens as the server tells them")
    add("--output-file", type=Path, help="a line is appended; default: a name of the run's facts")
    add("--output-details", action="store_true", help="lists of every request")
    add("--goodput", nargs="+", type=_slo, default=[], metavar="ttft:MS", help=", ".join(SLOS))
    add("--tag", default=None, help="kept in the result")
    add("--print-requests", action="store_true", help="a line for each answer")
    add("--disable-tqdm", action="store_true")


def _count(text: str) -> int:
    return _checked(int(text), text, at_least=0)


def _positive(text: str) -> int:
    return _checked(int(text), text, at_least=1)


def _checked(value: int, text: str, *, at_least: int) -> int:
    if value < at_least:
        raise argparse.ArgumentTypeError(f"must be at least {at_least}, got {text}")
    return value


def _above_zero(text: str) -> float:
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return float(text)


def _share(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, got {text}")
    return float(text)


def _slo(text: str) -> tuple[str, float]:
    name, _, limit = text.partition(":")
    if name not in SLOS or not limit:
        raise argparse.ArgumentTypeError(f"{text}: expected {' or '.join(SLOS)}, a colon, ms")
    return name, float(limit)


def _object(text: str) -> dict[str, object]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"must be an object, got {text[:80]}")
    return found
