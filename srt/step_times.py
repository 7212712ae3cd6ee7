"""Where the time of steps goes, as histograms that travel as plain counters.

    plan     the scheduler makes the step
    wait     from then on until the answer is here, less what follows: the way there and back, and
             the step before it
    run      rows to logits
    sample   logits to ids

Keys are those of Prometheus, `step_seconds_bucket{phase=run,le=0.001}` and
`step_seconds_sum{phase=run}`; `metrics.py` makes histograms of them.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

NAME = "step_seconds"
PHASES = ("plan", "wait", "run", "sample")
# From a plan of few requests to a long prompt on a CPU.
BOUNDS = (
    *(25e-6, 5e-5, 1e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4, 5e-4, 7.5e-4, 0.001, 0.0015, 0.002, 0.003),
    *(0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
MARKS = (*(f"{x:g}" for x in BOUNDS), "+Inf")


class StepTimes:
    """Of one scheduler. Invariant: every phase has been told of as many steps as the others."""

    def __init__(self) -> None:
        self._planned: dict[int, tuple[float, float]] = {}  # step: when, and how long it took
        self._counts = {phase: [0] * len(MARKS) for phase in PHASES}
        self._sums = dict.fromkeys(PHASES, 0.0)

    def planned(self, step: int, began: float, ended: float) -> None:
        """The step was made between these moments, in seconds of any clock."""
        self._planned[step] = (ended, ended - began)

    def answered(self, step: int, now: float, run_s: float, sample_s: float) -> None:
        """`run_s` is without `sample_s`. A step that was never planned here is left out."""
        if step not in self._planned:
            return
        sent, plan_s = self._planned.pop(step)
        wait_s = max(0.0, now - sent - run_s - sample_s)
        for phase, seconds in zip(PHASES, (plan_s, wait_s, run_s, sample_s), strict=True):
            self._counts[phase][bisect_left(BOUNDS, seconds)] += 1
            self._sums[phase] += seconds

    def counters(self) -> dict[str, float]:
        """Buckets count what is no more than their bound, like all of Prometheus."""
        made = {}
        for phase in PHASES:
            for mark, count in zip(MARKS, accumulate(self._counts[phase]), strict=True):
                made[f"{NAME}_bucket{{phase={phase},le={mark}}}"] = float(count)
            made[f"{NAME}_sum{{phase={phase}}}"] = self._sums[phase]
        return made
