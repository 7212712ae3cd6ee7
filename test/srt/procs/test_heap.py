"""Freed memory leaves the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Blocks of 64 KiB come from the heap; the last one stays, so that its end cannot be cut off.
CODE = """
import psutil
from treadle.srt.procs.heap import return_freed_memory
resident = lambda: psutil.Process().memory_info().rss
blocks = [bytearray(64 << 10) for _ in range(1024)]
del blocks[:-1]
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_freed_blocks_below_a_used_one_are_given_back():
    out = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True
    ).stdout
    assert int(out) > 32 << 20
