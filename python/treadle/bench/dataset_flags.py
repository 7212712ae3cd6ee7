"""Flags that say what to send: datasets, named as in SGLang's client, and fields of requests.

What is here beside that client's: `--length-scale`, the datasets `jsonl` and `random-ids` as ids
for every backend that takes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .flag_values import DEFAULT, above_zero, count, finite, json_object, positive, scale, share

DATASETS = (
    "random", "random-ids", "generated-shared-prefix", "sharegpt", "custom", "openai", "jsonl",
    "mooncake", "agentic-trace",
)  # fmt: skip
FROM_FILES = frozenset(DATASETS[3:])


def add_datasets(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("data; nothing is downloaded").add_argument
    add("--dataset-name", choices=DATASETS, default="random", help=DEFAULT)
    add("--dataset-path", type=Path)
    add("--dataset-offset", type=count, default=0, help="entries of the file to pass over")
    add("--num-prompts", type=positive, default=1000, help=DEFAULT)
    add("--sharegpt-output-len", type=positive, help="default: the length of the file's answer")
    add("--sharegpt-context-len", type=positive, help="longer ones are left out")
    add("--agentic-max-turns", type=count, default=0, help="of a conversation; 0: all")
    add("--tokenize-prompt", action="store_true", help="send token ids instead of text")
    add("--apply-chat-template", action="store_true", help="send prompts to the chat route")
    add("--seed", type=int, default=42)
    _random(found)
    _shared(found)
    _mooncake(found)


def add_request_fields(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("requests").add_argument
    add("--disable-stream", action="store_true")
    add("--disable-ignore-eos", action="store_true")
    add("--temperature", type=finite, default=0.0, help=DEFAULT)
    add("--top-p", type=finite, default=1.0, help=DEFAULT)
    add("--extra-request-body", type=json_object, default={}, metavar="JSON")
    add("--return-logprob", action="store_true")
    add("--top-logprobs-num", type=count, default=0)
    add("--logprob-start-len", type=int, default=-1)
    add("--lora-name", default="")


def _random(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("random, lengths in tokens").add_argument
    add("--random-input-len", type=positive, default=1024, help=DEFAULT)
    add("--random-output-len", type=positive, default=1024, help=DEFAULT)
    add("--random-range-ratio", type=share, default=0.0, help="shortest by longest; 0: from 1")


def _shared(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("generated-shared-prefix, lengths in tokens").add_argument
    add("--gsp-num-groups", type=positive, default=64, help=DEFAULT)
    add("--gsp-prompts-per-group", type=positive, default=16, help=DEFAULT)
    add("--gsp-system-prompt-len", type=positive, default=2048, help=DEFAULT)
    add("--gsp-question-len", type=positive, default=128, help=DEFAULT)
    add("--gsp-output-len", type=positive, default=256, help=DEFAULT)
    add("--gsp-num-turns", type=positive, default=1, help=DEFAULT)
    add("--gsp-send-routing-key", action="store_true", help="X-SMG-Routing-Key: one per group")
    add("--gsp-group-distribution", choices=["uniform", "zipf"], default="uniform",
        help="zipf: as many prompts in all, a group drawn for each")  # fmt: skip
    add("--gsp-zipf-alpha", type=above_zero, help="group n is drawn in proportion to n ** -alpha")


def _mooncake(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("mooncake").add_argument
    add("--mooncake-workload", choices=["conversation", "synthetic", "toolagent"],
        default="conversation", help="names the file where no path is given")  # fmt: skip
    add("--mooncake-slowdown-factor", type=scale, default=1.0)
    add("--mooncake-num-rounds", type=positive, default=1,
        help="how often a prompt is asked, each time behind the answers so far")  # fmt: skip
    add("--use-trace-timestamps", action="store_true", help="requests begin when the trace says")
    add("--length-scale", type=scale, default=1.0, help="factor of the trace's lengths")
