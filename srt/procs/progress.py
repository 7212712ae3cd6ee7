"""Loading progress of the workers: a bar on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import Never

from tqdm import tqdm

from ..lifecycle import Progress
from ..log import event

log = logging.getLogger(__name__)

LINE_INTERVAL_S = 5.0
BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}B"  # no rate: it begins in the middle


class LoadingProgress:
    """Sums the workers' bytes. `close` must be called before other lines follow a bar."""

    def __init__(self, *, is_terminal: bool | None = None) -> None:
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._latest: dict[int, Progress] = {}
        self._bar: tqdm[Never] | None = None
        self._last_line = time.monotonic()

    def update(self, progress: Progress) -> None:
        self._latest[progress.rank] = progress
        done = sum(p.done_bytes for p in self._latest.values())
        total = sum(p.total_bytes for p in self._latest.values())
        if self._is_terminal:
            self._draw(done, total, progress.label)
        elif time.monotonic() - self._last_line >= LINE_INTERVAL_S:
            self._last_line = time.monotonic()
            log.info(event("loading", {"done_bytes": done, "total_bytes": total}))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, done: int, total: int, label: str) -> None:
        bar = self._bar
        if bar is None:
            bar = tqdm(
                total=total, unit_scale=True, leave=False, dynamic_ncols=True, bar_format=BAR
            )
            self._bar = bar
        bar.total = total
        bar.n = done  # messages come a few times per second: each is drawn
        bar.set_description_str(f"loading {label}"[:40])
