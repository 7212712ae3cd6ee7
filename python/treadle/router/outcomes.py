"""What an attempt's end means: for the breaker, and for whether the request is tried elsewhere.

Pure. The table of retries, by what happened before any byte of a body was passed on:

    nothing was sent (refused, TLS, reset while sending)          other replica
    429 or 503 with X-Not-Admitted: 1                             other replica
    500, 502, 504, or the connection broke after it was sent      other replica, after an abort
    a time limit, any other status, a route that must not repeat  no
After a byte of the body, never.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BACK_PRESSURE = frozenset({429, 503})
BROKEN = frozenset({500, 502, 504})
NOT_ADMITTED = "x-not-admitted"


class Evidence(StrEnum):
    """Of a replica's health."""

    SUCCESS = "success"
    NEUTRAL = "neutral"
    FAILURE = "failure"


class Break(StrEnum):
    """How an attempt ended without a whole answer."""

    NOT_SENT = "not_sent"  # the replica cannot have begun
    NO_ANSWER = "no_answer"  # sent, then the connection broke before the body
    TIMEOUT = "timeout"
    MID_BODY = "mid_body"


class Broken(Exception):
    """An exchange that ended without a whole answer. `reason` is for the log and the client: it
    holds no addresses.
    """

    def __init__(self, kind: Break, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


class Again(StrEnum):
    NO = "no"
    BUSY = "busy"  # elsewhere; this replica is well
    FAILED = "failed"  # elsewhere; nothing is left behind
    ABORT_FIRST = "abort_first"  # elsewhere, once this replica was told to stop


def evidence_of(status: int) -> Evidence:
    """Bad requests must not take a replica out, nor must back-pressure."""
    if status in BACK_PRESSURE:
        return Evidence.NEUTRAL
    return Evidence.FAILURE if status >= 500 and status != 501 else Evidence.SUCCESS


def after_status(status: int, *, was_admitted: bool, is_repeatable: bool) -> Again:
    if not is_repeatable:
        return Again.NO
    if status in BACK_PRESSURE and not was_admitted:
        return Again.BUSY
    return Again.ABORT_FIRST if status in BROKEN else Again.NO


def after_break(kind: Break, *, is_repeatable: bool) -> Again:
    if not is_repeatable or kind in (Break.TIMEOUT, Break.MID_BODY):
        return Again.NO
    return Again.FAILED if kind is Break.NOT_SENT else Again.ABORT_FIRST


@dataclass(slots=True, eq=False)
class RetryBudget:
    """Retries are at most `share` of requests, and `burst` more: what one dead replica may leave
    behind at once.
    """

    share: float = 0.1
    burst: float = 100.0
    _left: float = -1.0

    def arrived(self) -> None:
        left = self.burst if self._left < 0 else self._left
        self._left = min(self.burst, left + self.share)

    def take(self) -> bool:
        """Whether one more retry is allowed; it then counts."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def back_off(attempt: int, base_s: float, chance: float) -> float:
    """Seconds before retry `attempt` (1, 2, ..). `chance`: uniform in [0, 1): half is jitter."""
    return base_s * 2.0 ** (attempt - 1) * (0.5 + 0.5 * chance)
