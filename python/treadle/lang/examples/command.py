"""Examples as commands: `python -m treadle.lang.examples.react [URL]`, by default on a server that
is started for it.
"""

from __future__ import annotations

import pprint
import sys
from collections.abc import Callable

import treadle as tr


def show(main: Callable[[], object]) -> None:
    """Runs an example and writes what it returns."""
    if len(sys.argv) > 1:
        tr.set_default_backend(tr.RuntimeEndpoint(sys.argv[1]))
        found = main()
    else:
        with tr.Engine("demo:v41-mini") as engine:
            tr.set_default_backend(engine)
            found = main()
    sys.stdout.write(pprint.pformat(found) + "\n")
