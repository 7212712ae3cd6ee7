"""Errors that only a router has, each with its HTTP status. The tree's root is `srt/errors.py`."""

from __future__ import annotations

from typing import ClassVar

from ..srt.errors import BadRequest, NotAdmitted, Overloaded, TreadleError


class NoReplica(NotAdmitted):
    """None is ready, or none is left to be tried."""


class TooMany(Overloaded):
    status: ClassVar[int] = 429
    kind: ClassVar[str] = "RateLimitError"


class WaitedTooLong(BadRequest):
    status: ClassVar[int] = 408
    kind: ClassVar[str] = "RequestTimeoutError"


class SessionLost(BadRequest):
    """The replica that held a server-side session is gone. Never an empty history instead."""

    status: ClassVar[int] = 410
    kind: ClassVar[str] = "SessionLostError"


class UpstreamBroken(TreadleError):
    """A replica that was sent a request did not answer it."""

    status: ClassVar[int] = 502
    kind: ClassVar[str] = "BadGatewayError"


class UpstreamTimeout(TreadleError):
    status: ClassVar[int] = 504
    kind: ClassVar[str] = "GatewayTimeoutError"
