"""The console command `treadle`: serves a model, looks at traces of runs, says its version."""

from __future__ import annotations

import sys

from . import __version__, launch_server
from .lang import trace_command

USAGE = """usage: treadle serve MODEL [flags]    serve a model over HTTP; more: treadle serve --help
       treadle trace view FILE        draw a saved run of a program; treadle trace --help
       treadle trace replay FILE --url URL
       treadle version
"""


def main() -> int:
    return run(sys.argv[1:])


def run(argv: list[str]) -> int:
    """Exit status."""
    command = argv[0] if argv else ""
    if command == "serve":
        return launch_server.main(argv[1:], program="treadle serve", positional_model=True)
    if command == "trace":
        return trace_command.main(argv[1:])
    if command in ("version", "--version"):
        sys.stdout.write(f"treadle {__version__}\n")
        return 0
    wants_help = command in ("help", "--help", "-h")
    (sys.stdout if wants_help else sys.stderr).write(USAGE)
    return 0 if wants_help else 2


if __name__ == "__main__":
    sys.exit(main())
