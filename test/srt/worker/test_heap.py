"""Freed step buffers stay in the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, torch
from treadle.srt.worker.heap import keep_freed_memory
assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    x = torch.empty(4 << 20, dtype=torch.float32)  # 16 MiB
    x.fill_(1.0)
for _ in range(60):  # memalign walks the heap before it finds freed blocks again
    step()
before = faults()
for _ in range(20):
    step()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_a_step_sized_buffer_faults_no_new_pages_in():
    out = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True
    ).stdout
    assert int(out) < 1000  # one buffer alone is 4,096 pages
