"""Names of a step's parts, for whoever looks at a timeline.

In traces of torch's profiler they are ranges of the host, while one is taken; on an NVIDIA device
they are NVTX ranges too, always, which tools that look in from outside read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.profiler import record_function


class Marks:
    """`has_nvtx`: whether this process has a device that its tools may look at."""

    def __init__(self, *, has_nvtx: bool) -> None:
        self._has_nvtx = has_nvtx
        self.is_profiled = False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Everything inside is a part of this name. Parts may lie in one another."""
        if self._has_nvtx:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        try:
            if self.is_profiled:
                with record_function(f"treadle.{name}"):
                    yield
            else:
                yield
        finally:
            if self._has_nvtx:
                torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
