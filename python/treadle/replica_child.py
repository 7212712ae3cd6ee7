"""`python -m treadle.replica_child`: one of several replicas, with its configuration as JSON on
standard input. Started by `fleet_launcher`; users start `launch_server`.
"""

from __future__ import annotations

import sys

from .srt.config import ServerConfig
from .srt.errors import TreadleError
from .srt.net.typed import load_json
from .srt.procs.launcher import Programs, launch


def main() -> int:
    """Exit status."""
    try:
        launch(load_json(ServerConfig, sys.stdin.buffer.read()), Programs())
    except TreadleError as e:
        sys.stderr.write(f"error: {e.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
