"""`python -m treadle.bench COMMAND`, one of `COMMANDS`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from .control import Unready

COMMANDS = {
    "serving": "load a server with a dataset and time its answers",
    "agent": "play recorded agent sessions against servers",
    "compare": "the same load on servers in turns: ratios with their spread",
    "report": "results as tables of the README and as one page with the plots",
    "one_batch": "time batches of given shapes, prefill and decode apart",
    "offline_throughput": "send all requests at once and time them",
}
INTERRUPTED = 130  # as shells say of SIGINT
USAGE = "usage: python -m treadle.bench COMMAND [flags]    more: COMMAND --help\n" + "".join(
    f"  {name:19}{text}\n" for name, text in COMMANDS.items()
)


def main(argv: Sequence[str]) -> int:
    """Exit status: the command's, or 2 with a line on standard error for what the user can mend. A
    command is imported when it is asked for."""
    name = argv[0] if argv else ""
    if name not in COMMANDS:
        wants_help = name in ("help", "--help", "-h")
        unknown = f"error: there is no command {name}\n" if name and not wants_help else ""
        (sys.stdout if wants_help else sys.stderr).write(unknown + USAGE)
        return 0 if wants_help else 2
    try:
        status: int = import_module(f".{name}", __package__).main(argv[1:])
    except (Unready, ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
