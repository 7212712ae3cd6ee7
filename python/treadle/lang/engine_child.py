"""`python -m treadle.lang.engine_child FLAGS`: a server that ends when its standard input closes,
as it does when the process that started it is gone, however it went.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from .. import launch_server


def main() -> int:
    """Exit status."""
    threading.Thread(target=_watch, name="parent", daemon=True).start()
    return launch_server.main(sys.argv[1:], program="Engine")


def _watch() -> None:
    """By the descriptor: a buffered reader would hold its lock when the interpreter ends."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
