"""`python -m treadle.launch_server`: flags -> ServerConfig -> the processes of one replica."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .command_line import parse_command_line
from .srt.errors import TreadleError
from .srt.procs.launcher import Programs, launch

PROGRAM = "python -m treadle.launch_server"


def main(
    argv: Sequence[str],
    *,
    program: str = PROGRAM,
    positional_model: bool = False,
    programs: Programs | None = None,
) -> int:
    """Exit status: 0 after an ordered stop, 1 with one line on standard error otherwise."""
    try:
        line = parse_command_line(
            argv, os.environ, program=program, positional_model=positional_model
        )
        for notice in line.notices:
            sys.stderr.write(f"note: {notice}\n")
        if not line.config.model.path:
            sys.stderr.write(f"error: --model-path is required; see {program} --help\n")
            return 1
        launch(line.config, programs or Programs())
    except TreadleError as e:
        sys.stderr.write(f"error: {e.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
