"""The server's side of an Engine: it does not outlive whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from test.e2e.server import ROOT, WAIT_S

# In the place of the server something that waits for its end.
CHILD = """
import signal
from treadle.lang import engine_child
engine_child.launch_server.main = lambda argv, program: signal.pause()
print("up", flush=True)
engine_child.main()
"""


def test_a_server_ends_when_its_standard_input_closes():
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.stdin.close()
    assert process.wait(WAIT_S) == -signal.SIGTERM
    process.stdout.close()
