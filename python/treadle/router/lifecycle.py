"""The life of one replica as the router sees it. Pure: time is an argument.

    starting --ready--> ready --says so, or an operator does--> draining --> gone
       ^                  |  ^
       |           3 failures  successes
       |                  v  |
       +--not ready-- suspect (breaker open; half-open once a probe succeeds after the back-off)

Only `ready` and half-open replicas get requests. Passive evidence (requests) and probes feed the
same counter. What counts as a failure is decided by the caller (`outcomes.py`). Invariants: `gone`
is final; a replica that came back begins with little weight; one that fails again soon after that
waits longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

START_SHARE = 0.1  # of the weight, at the begin of a ramp


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    SUSPECT = "suspect"
    GONE = "gone"


class Breaker(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Probe(StrEnum):
    READY = "ready"
    NOT_READY = "not_ready"  # it answers, but takes no requests: it starts or drains
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LifeRules:
    """Times in seconds. `failure_window_s`: failures further apart than this are not running."""

    failure_threshold: int = 3
    success_threshold: int = 3  # of a half-open breaker
    failure_window_s: float = 120.0
    back_off_s: float = 1.0  # doubles with each opening
    max_back_off_s: float = 60.0
    has_breaker: bool = True
    ramp_s: float = 30.0
    min_dwell_s: float = 60.0
    drain_timeout_s: float = 300.0


class Life:
    def __init__(self, rules: LifeRules, *, is_first: bool) -> None:
        """`is_first`: there when the router started, so its first readiness is no return."""
        self._rules = rules
        self._state = State.STARTING
        self._breaker = Breaker.CLOSED
        self._failures = 0
        self._successes = 0
        self._failed_at = 0.0
        self._retry_at = 0.0
        self._back_off_s = 0.0
        self._ready_at = 0.0
        self._drained_by = float("inf")
        self._is_ordered = False  # an operator's drain, which no probe undoes
        self._ramps = not is_first
        self.num_openings = 0  # of the breaker

    @property
    def state(self) -> State:
        return self._state

    @property
    def breaker(self) -> Breaker:
        return self._breaker

    @property
    def drain_deadline(self) -> float:
        """When running requests are aborted; infinite while nothing drains."""
        return self._drained_by

    def weight(self, now: float) -> float:
        """0: no new requests."""
        if self._breaker is Breaker.HALF_OPEN:
            return START_SHARE
        if self._state is not State.READY:
            return 0.0
        if not self._ramps or self._rules.ramp_s <= 0:
            return 1.0
        return min(1.0, max(START_SHARE, (now - self._ready_at) / self._rules.ramp_s))

    def succeeded(self, now: float) -> None:
        """A request was answered as it should be."""
        self._failures = 0
        if self._breaker is Breaker.HALF_OPEN:
            self._successes += 1
            if self._successes >= self._rules.success_threshold:
                self._become_ready(now)

    def failed(self, now: float) -> None:
        """A request broke, or a probe."""
        if self._state not in (State.READY, State.SUSPECT):
            return
        if now - self._failed_at > self._rules.failure_window_s:
            self._failures = 0
        self._failures += 1
        self._failed_at = now
        is_enough = self._failures >= self._rules.failure_threshold
        if self._breaker is Breaker.HALF_OPEN or (self._state is State.READY and is_enough):
            self._open(now)

    def probed(self, result: Probe, now: float) -> None:
        if self._state is State.GONE:
            return
        if result is Probe.READY:
            self._answered(now)
        elif result is Probe.NOT_READY:
            self._declined()
        else:
            if self._state is State.DRAINING and not self._is_ordered:
                self._state = State.STARTING  # it has ended and may come back
            self.failed(now)

    def drain(self, now: float) -> None:
        """No new requests, for good."""
        if self._state is not State.GONE and not self._is_ordered:
            self._is_ordered = True
            self._state, self._breaker = State.DRAINING, Breaker.CLOSED
            self._drained_by = now + self._rules.drain_timeout_s

    def end(self) -> None:
        self._state, self._breaker = State.GONE, Breaker.CLOSED

    def _answered(self, now: float) -> None:
        if self._is_ordered:
            return
        if self._state is not State.SUSPECT:
            self._failures = 0
            if self._state is not State.READY:
                self._become_ready(now)
        elif self._breaker is Breaker.HALF_OPEN:
            self.succeeded(now)
        elif now >= self._retry_at:
            self._breaker = Breaker.HALF_OPEN
            self._successes = 0

    def _declined(self) -> None:
        if self._state is State.READY:
            self._state, self._ramps = State.DRAINING, True
        elif self._state is State.SUSPECT:
            self._state, self._breaker = State.STARTING, Breaker.CLOSED

    def _become_ready(self, now: float) -> None:
        self._state, self._breaker = State.READY, Breaker.CLOSED
        self._failures = 0
        self._ready_at = now

    def _open(self, now: float) -> None:
        rules = self._rules
        if not rules.has_breaker:
            return
        is_calm = self._state is State.READY and now - self._ready_at >= rules.min_dwell_s
        longer = min(rules.max_back_off_s, 2 * self._back_off_s)
        self._back_off_s = rules.back_off_s if is_calm or not self._back_off_s else longer
        self._retry_at = now + self._back_off_s
        self.num_openings += 1
        self._state, self._breaker, self._ramps = State.SUSPECT, Breaker.OPEN, True
