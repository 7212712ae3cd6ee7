"""Keeps freed step buffers in the process, so that a step allocates no fresh memory.

Activations of a prefill step are tens of megabytes. glibc returns such blocks to the system when
they are freed and faults zeroed pages in when they are asked for again; on two cores that costs
as much as the arithmetic that fills them.
"""

from __future__ import annotations

import ctypes
import sys

# Source: glibc malloc.h and mallopt(3). The threshold's ceiling is 32 MiB on 64-bit systems.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MMAP_THRESHOLD_BYTES = 32 << 20
TRIM_THRESHOLD_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Call once, after weights and pools are allocated. False where libc has no such knob."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    kept = libc.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    return bool(kept and libc.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES))
