"""Flags of `bench serving`, named as those of SGLang's client, which has no `--burstiness`."""

from __future__ import annotations

import argparse
from pathlib import Path

from .asks import Json
from .dataset_flags import add_datasets, add_request_fields
from .figures import SLOS
from .flag_values import DEFAULT, above_zero, count, not_negative, port, positive, utf8
from .profile import add_profile
from .wires import WIRES


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m treadle.bench serving", description="Load a server and time its answers."
    )
    _target(found)
    add_workload(found)
    _output(found)
    add_profile(found)
    return found


def add_workload(found: argparse.ArgumentParser) -> None:
    """What is sent and when: the same for any server."""
    _reach(found)
    add_datasets(found)
    _load(found)
    add_request_fields(found)


def completed(args: argparse.Namespace, at: Json) -> argparse.Namespace:
    """Of another command's arguments those that `bench serving` takes, with `at` in their place;
    what is in neither is as by default."""
    known = vars(parser().parse_args([]))
    given = {name: value for name, value in vars(args).items() if name in known}
    return argparse.Namespace(**known | given | at)


def _target(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("server").add_argument
    add("--backend", choices=list(WIRES), help="default: what /v1/models says that serves")
    add("--base-url", help="goes before --host and --port")
    add("--host", default="127.0.0.1", help=DEFAULT)
    add("--port", type=port, default=30000, help=DEFAULT)
    add("--model", default="", help="default: the server's")


def _reach(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("reaching servers").add_argument
    add("--served-model-name", default="", help="the name in requests, where --model is a path")
    add("--tokenizer", type=Path, help="tokenizer.json or its folder; default: ask the server")
    add("--header", nargs="*", default=[], metavar="K=V", help="sent with every request")
    add("--ready-check-timeout-sec", type=not_negative, default=60.0)


def _load(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("load").add_argument
    add("--request-rate", type=above_zero, default=float("inf"), help="per second; " + DEFAULT)
    add("--burstiness", type=above_zero, default=1.0, help="1: Poisson; else a gamma process")
    add("--max-concurrency", type=positive, help="requests at once; default: no limit")
    add("--warmup-requests", type=count, default=1, help="not measured")
    add("--flush-cache", action="store_true", help="empty the server's cache before the run")
    add("--flush-cache-timeout", type=above_zero, default=60.0)


def _output(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("result").add_argument
    add("--cache-report", action="store_true", help="cached tokens as the server tells them")
    add("--output-file", type=Path, help="a line is appended; default: a name of the run's facts")
    add("--result-format", choices=["sglang", "vllm"], default="sglang", help="whose keys it has")
    add("--output-details", action="store_true", help="lists of every request")
    add("--goodput", nargs="+", type=_slo, default=[], metavar="ttft:MS", help=", ".join(SLOS))
    add("--tag", type=utf8, help="kept in the result")
    add("--print-requests", action="store_true", help="a line for each answer")
    add("--disable-tqdm", action="store_true")


def _slo(text: str) -> tuple[str, float]:
    name, _, limit = text.partition(":")
    if name not in SLOS:
        raise argparse.ArgumentTypeError(f"{text}: expected {' or '.join(SLOS)}, a colon, ms")
    try:
        return name, above_zero(limit)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: no number of ms") from None
