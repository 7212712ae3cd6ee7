"""`python -m treadle.bench offline_throughput`: all requests at once, and how long they take.

The requests go over HTTP to a server of this machine, started for them unless one is named, as
there is no other way into ours.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from . import figures
from .asks import Json, engine_state
from .dataset_flags import add_datasets, add_request_fields
from .environment import append_line, prepare
from .local import EPILOG, add_server, served
from .profile import add_profile
from .serving_flags import completed
from .serving_run import Measured, run

SAME_AS_SERVING = (
    "total_input_tokens", "total_output_tokens", "request_throughput", "input_throughput",
    "output_throughput", "total_throughput",
)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Exit status: 1 where a request failed. Raises Unready, ValueError, OSError for what the user
    can mend."""
    args, server_flags = parser().parse_known_args(argv)
    if args.result_filename:
        prepare(args.result_filename)
    with served(args, server_flags) as url:
        at = {"base_url": url, "warmup_requests": 0 if args.skip_warmup else 1}
        measured = asyncio.run(run(completed(args, at)))  # all at once: the flags' defaults
    result = line(measured)
    if args.result_filename:
        append_line(args.result_filename, result)
    sys.stdout.write("".join(f"{key:22}{value!s:>20}\n" for key, value in result.items()))
    return 1 if result["failed"] else 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m treadle.bench offline_throughput",
        description="Send all requests at once and time them.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    add_server(found)
    add_datasets(found)
    add_request_fields(found)
    add = found.add_argument_group("result").add_argument
    add("--skip-warmup", action="store_true")
    add("--result-filename", type=Path, help="a line is appended")
    add_profile(found)
    return found


def line(measured: Measured) -> Json:
    """The keys of SGLang's tool; `failed` is ours."""
    told = figures.rates(measured.done)
    return {
        "successful_requests": told["completed"],
        "failed": told["failed"],
        "total_latency": told["duration"],
        **{key: told[key] for key in SAME_AS_SERVING},
        "last_gen_throughput": engine_state(measured.done.server_info).get("last_gen_throughput"),
    }
