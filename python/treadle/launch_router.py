"""`python -m treadle.launch_router --worker-urls URL ...`: flags -> RouterConfig -> the router."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .flag_parser import CommandLine, FlagTable, parse_flags
from .flags.router import ROUTER_FOREIGN, ROUTER_SECTIONS
from .router.config import RouterConfig
from .router.process import run, settle
from .srt.errors import TreadleError

PROGRAM = "python -m treadle.launch_router"
TABLE = FlagTable(
    RouterConfig,
    ROUTER_SECTIONS,
    ROUTER_FOREIGN,
    usage="--worker-urls URL ...",
    description="Spread requests over replicas, each session where its prefix is cached.",
)


def parse_router_flags(argv: Sequence[str], program: str = PROGRAM) -> CommandLine[RouterConfig]:
    """Raises ConfigError; `--help` raises SystemExit."""
    return parse_flags(TABLE, argv, os.environ, program)


def main(argv: Sequence[str], *, program: str = PROGRAM) -> int:
    """Exit status: 0 after an ordered stop, 1 with one line on standard error otherwise."""
    try:
        line = parse_router_flags(argv, program)
        for notice in line.notices:
            sys.stderr.write(f"note: {notice}\n")
        run(settle(line.config))
    except TreadleError as e:
        sys.stderr.write(f"error: {e.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
