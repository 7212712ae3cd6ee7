"""`python -m treadle.bench serving`: loads a server with a dataset and reports its latencies.

One line of JSON is appended to a file for each run, a table goes to standard output. The exit
status is 1 where a request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .environment import append_line, prepare
from .serving_flags import parser
from .serving_result import sglang_line, vllm_line
from .serving_run import run
from .serving_table import table


def main(argv: Sequence[str]) -> int:
    """Exit status. Raises Unready, ValueError, OSError for what the user can mend."""
    args = parser().parse_args(argv)
    if args.output_file:
        prepare(args.output_file)
    measured = asyncio.run(run(args))
    result = sglang_line(args, measured)
    kept = vllm_line(args, measured) if args.result_format == "vllm" else result
    path = args.output_file or Path(default_file(args, result["backend"]))
    append_line(path, kept)
    sys.stdout.write(f"{table(result)}{path}\n")
    return 1 if result["failed"] else 0


def default_file(args: argparse.Namespace, backend: str) -> str:
    what = args.dataset_name
    if what.startswith("random"):
        what = f"{args.random_input_len}_{args.random_output_len}"
    return f"{backend}_{time.strftime('%m%d')}_{args.num_prompts}_{what}.jsonl"
