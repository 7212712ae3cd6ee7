"""What the NVIDIA driver says of the device that a worker would use, asked without torch.

The launcher sizes caches before a worker exists, and never imports torch: it asks the management
library (NVML) itself.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
OK = 0


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes. Zero where there is no device."""

    total: int = 0
    free: int = 0


class _Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def read_device_memory() -> DeviceMemory:
    """Of the first device that this process may see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.split(",")[0].strip()
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return DeviceMemory()
    if not first or library.nvmlInit_v2() != OK:
        return DeviceMemory()
    try:
        return _memory_of(library, first)
    finally:
        library.nvmlShutdown()


def _memory_of(library: ctypes.CDLL, name: str) -> DeviceMemory:
    """`name`: an index, or a UUID as `CUDA_VISIBLE_DEVICES` takes it."""
    handle, memory = ctypes.c_void_p(), _Memory()
    if name.isdigit():
        found = library.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(handle))
    else:
        found = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    if found != OK or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != OK:
        return DeviceMemory()
    return DeviceMemory(memory.total, memory.free)
