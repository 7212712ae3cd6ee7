"""The stand-in with clients: it hears of the launcher's death through its inbox."""

from __future__ import annotations

import sys

from standin import serve  # type: ignore[import-not-found]  # the folder is on the path

from treadle.srt.procs.boot import run_child

if __name__ == "__main__":
    sys.exit(run_child(serve, has_clients=True))
