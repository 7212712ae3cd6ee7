"""`python -m treadle.launch_server`: flags -> ServerConfig -> the processes of one replica, or of
several replicas and a router.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .command_line import parse_command_line
from .flags.router import ROUTER_FOREIGN, ROUTER_SECTIONS
from .flags.row import Kind
from .fleet_launcher import FleetLauncher, split_router_flags
from .srt.errors import ConfigError, TreadleError
from .srt.procs.launcher import Programs, launch

PROGRAM = "python -m treadle.launch_server"
ROUTER_SWITCHES = frozenset(
    spelling
    for flag in (*(flag for _, flags in ROUTER_SECTIONS for flag in flags), *ROUTER_FOREIGN)
    if flag.kind is Kind.SWITCH
    for spelling in flag.spellings
)


def main(
    argv: Sequence[str],
    *,
    program: str = PROGRAM,
    positional_model: bool = False,
    programs: Programs | None = None,
) -> int:
    """Exit status: 0 after an ordered stop, 1 with one line on standard error otherwise."""
    try:
        argv, router_flags = split_router_flags(list(argv), ROUTER_SWITCHES)
        line = parse_command_line(
            argv, os.environ, program=program, positional_model=positional_model
        )
        for notice in line.notices:
            sys.stderr.write(f"note: {notice}\n")
        if not line.config.model.path:
            sys.stderr.write(f"error: --model-path is required; see {program} --help\n")
            return 1
        if line.config.parallel.dp_size > 1:
            FleetLauncher(line.config, router_flags).run()
        elif router_flags:
            raise ConfigError(
                f"--router-{router_flags[0][2:]}: there is no router with --dp-size 1"
            )
        else:
            launch(line.config, programs or Programs())
    except TreadleError as e:
        sys.stderr.write(f"error: {e.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
