"""Transfers between host and device that wait for nothing.

Everything of a step that the host computes goes up in one copy from pinned memory; what it wants to
read comes down into pinned memory and is there once the step's event has happened. Pinned blocks
are torch's own: one is handed out again only after the copies from and to it are done. On the CPU
the same calls pass tensors on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.int64] | npt.NDArray[np.float64]


def upload(
    arrays: Sequence[Array], device: torch.device, into: Tensor | None = None
) -> list[Tensor]:
    """The arrays on the device, of their shapes and dtypes, in one copy. `into`: int64 of at least
    as many elements in all, where they are put one after the other."""
    sizes = [x.size for x in arrays]
    total = sum(sizes)
    host = torch.empty(total, dtype=torch.int64, pin_memory=device.type == "cuda")
    words, first = host.numpy(), 0
    for array, size in zip(arrays, sizes, strict=True):
        words[first : first + size] = array.reshape(-1).view(np.int64)
        first += size
    if into is None:
        there = host.to(device, non_blocking=True)
    else:
        there = into[:total]
        there.copy_(host, non_blocking=True)
    parts = torch.split(there, sizes)
    return [_shaped(part, array) for part, array in zip(parts, arrays, strict=True)]


def _shaped(part: Tensor, array: Array) -> Tensor:
    typed = part.view(torch.float64) if array.dtype == np.float64 else part
    return typed.view(array.shape)


def download(tensor: Tensor) -> Tensor:
    """A tensor on the host that holds `tensor` once what the device was asked for is done."""
    if tensor.device.type != "cuda":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


class Moment:
    """A point in the order of the device's work. `reached` waits for it, asleep."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
            self._event.record()

    def reached(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def since(self, other: Moment) -> float:
        """Milliseconds of the device between two moments that have been reached; 0 on the CPU."""
        if self._event is None or other._event is None:
            return 0.0
        return float(other._event.elapsed_time(self._event))
