"""The console command `treadle`: `treadle serve MODEL [flags]`, `treadle version`."""

from __future__ import annotations

import sys

from . import __version__, launch_server

USAGE = """usage: treadle serve MODEL [flags]    serve a model over HTTP; more: treadle serve --help
       treadle version
"""


def main() -> int:
    return run(sys.argv[1:])


def run(argv: list[str]) -> int:
    """Exit status."""
    command = argv[0] if argv else ""
    if command == "serve":
        return launch_server.main(argv[1:], program="treadle serve", positional_model=True)
    if command in ("version", "--version"):
        sys.stdout.write(f"treadle {__version__}\n")
        return 0
    wants_help = command in ("help", "--help", "-h")
    (sys.stdout if wants_help else sys.stderr).write(USAGE)
    return 0 if wants_help else 2


if __name__ == "__main__":
    sys.exit(main())
