"""The driver's answer, with a library that the test plays; without one there is no device."""

from __future__ import annotations

import ctypes

import pytest

from treadle.srt import nvidia
from treadle.srt.nvidia import DeviceMemory, read_device_memory


class PlayedLibrary:
    """NVML as far as it is asked. Devices "1" and "GPU-x" exist."""

    def __init__(self) -> None:
        self.is_open = False

    def nvmlInit_v2(self) -> int:
        self.is_open = True
        return 0

    def nvmlShutdown(self) -> int:
        self.is_open = False
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: object) -> int:
        return 0 if index == 1 else 6

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: object) -> int:
        return 0 if name == b"GPU-x" else 6

    def nvmlDeviceGetMemoryInfo(self, handle: object, memory: object) -> int:
        memory._obj.total, memory._obj.free = 100, 60  # type: ignore[attr-defined]
        return 0


@pytest.mark.parametrize(
    ("visible", "want"),
    [
        ("1,0", DeviceMemory(100, 60)),
        ("GPU-x", DeviceMemory(100, 60)),
        ("0", DeviceMemory()),
        ("", DeviceMemory()),
    ],
)
def test_memory_is_that_of_the_first_visible_device(
    monkeypatch: pytest.MonkeyPatch, visible: str, want: DeviceMemory
):
    library = PlayedLibrary()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_device_memory() == want
    assert not library.is_open


def test_without_a_driver_there_is_no_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nvidia, "LIBRARY", "libthere-is-no-such-thing.so.1")
    assert read_device_memory() == DeviceMemory()
