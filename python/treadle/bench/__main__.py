"""`python -m treadle.bench COMMAND`: load a server, play agents, compare servers, draw results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "serving": "load a server with a dataset and time its answers",
}
USAGE = "usage: python -m treadle.bench COMMAND [flags]    more: COMMAND --help\n" + "".join(
    f"  {name:9}{text}\n" for name, text in COMMANDS.items()
)


def main(argv: Sequence[str]) -> int:
    """Exit status. A command is imported when it is asked for: some need matplotlib, one that only
    loads a server does not."""
    name = argv[0] if argv else ""
    if name not in COMMANDS:
        wants_help = name in ("help", "--help", "-h")
        (sys.stdout if wants_help else sys.stderr).write(USAGE)
        return 0 if wants_help else 2
    try:
        command = import_module(f".{name}", __package__)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        sys.stderr.write(f"error: {name} draws with matplotlib: pip install 'treadle[bench]'\n")
        return 2
    status: int = command.main(argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
