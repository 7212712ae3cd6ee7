"""Profiles of a worker: torch's profiler from one message to another, or for some steps.

Invariant: at most one profile runs, and one that has run to its end left a trace file. The trace is
written between two steps and takes seconds for a long profile; nothing is computed meanwhile. A
step is megabytes of memory until then, so a profile that nobody stops ends after `MAX_STEPS`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from ..log import event
from ..profiling import ProfileOptions
from .marks import Marks

log = logging.getLogger(__name__)

MAX_STEPS = 1000  # where none are asked for


class Profiler:
    """`rank`, the worker's, is a part of the file's name."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self._profile: profile | None = None
        self._path = Path()
        self._steps_left = 0
        self._awaits_stop = False  # no number of steps was given, so a stop is to come
        self.marks = Marks(has_nvtx=torch.cuda.is_available())

    def start(self, options: ProfileOptions) -> tuple[bool, str]:
        """Whether it began, and where the trace will be or why not."""
        if self._profile is not None:
            return False, f"a profile is being taken, for {self._path}"
        path = Path(options.folder) / f"{options.name}-rank{self.rank}.trace.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as e:
            return False, f"output_dir: {e.strerror}: {path}"
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            with_stack=options.with_stack,
            record_shapes=options.record_shapes,
        )
        self._path, self._steps_left = path, options.num_steps or MAX_STEPS
        self._awaits_stop = not options.num_steps
        self._profile.start()
        self.marks.is_profiled = True
        return True, str(path)

    def stop(self) -> tuple[bool, str]:
        """Whether a profile was running, or was cut before this, and where its trace is."""
        if self._profile is not None:
            self._write()
        elif not self._awaits_stop:
            return False, "no profile is being taken"
        self._awaits_stop = False
        return True, str(self._path)

    def stepped(self) -> None:
        """After every step: ends a profile of as many steps as were asked for, or may be taken."""
        if self._profile is None:
            return
        self._steps_left -= 1
        if self._steps_left == 0:
            self._write()
            if self._awaits_stop:
                log.warning(event("profile_cut", {"steps": MAX_STEPS, "path": self._path}))

    def _write(self) -> None:
        assert self._profile is not None
        running, self._profile = self._profile, None
        self.marks.is_profiled = False
        running.stop()
        running.export_chrome_trace(str(self._path))
        log.info(event("profile_written", {"path": self._path}))
