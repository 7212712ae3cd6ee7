"""Examples as commands: `python -m treadle.lang.examples.react [URL]`, by default on a server that
is started for it.
"""

from __future__ import annotations

import argparse
import pprint
import sys
from collections.abc import Callable

import treadle as tr


def show(main: Callable[[], object]) -> None:
    """Runs an example and writes what it returns."""
    flags = argparse.ArgumentParser()
    flags.add_argument("url", nargs="?", help="of a server; default: one is started on v41-mini")
    url = flags.parse_args().url
    if url:
        tr.set_default_backend(tr.RuntimeEndpoint(url))
        found = main()
    else:
        with tr.Engine("demo:v41-mini") as engine:
            tr.set_default_backend(engine)
            found = main()
    sys.stdout.write(pprint.pformat(found) + "\n")
