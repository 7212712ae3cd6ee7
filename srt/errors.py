"""The error tree: every error that may reach a client, with the HTTP status that it becomes.

    TreadleError (500)
    +-- BadRequest (400)        a value that the caller can mend
    |   +-- TooLong (400)       prompt or prompt + output beyond the context
    |   +-- NotFound (404)      a model or route object that does not exist
    |   +-- NotSupported (501)  a feature that this build does not have
    |   +-- Unauthorized (401)
    |   +-- Forbidden (403)     the key is good, but not for this route
    |   +-- TooLarge (413)      a request body beyond the limit
    +-- Overloaded (503)        no room, or out of time
    |   +-- NotAdmitted         before any work: queue full, starting, draining; retry elsewhere
    +-- Aborted (499)           the caller or the client's disconnect ended it
    +-- WorkerLost (503)        a process of this replica died
    +-- InvariantBroken (500)   a bug in this repository
    +-- ConfigError             a flag or config value; ends the launch command
    +-- CheckpointError         a model file; ends the launch command

The message is for the user: it names the field or flag, the value and the limit.
"""

from __future__ import annotations

from typing import ClassVar


class TreadleError(Exception):
    """Base of all errors raised on purpose. `code`: the machine-readable word of OpenAI bodies."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "InternalServerError"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class BadRequest(TreadleError):
    status = 400
    kind = "BadRequestError"


class TooLong(BadRequest):
    """The text must hold the words `context length`: clients classify overflow by them."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class NotFound(BadRequest):
    status = 404
    kind = "NotFoundError"


class NotSupported(BadRequest):
    status = 501
    kind = "NotImplementedError"


class Unauthorized(BadRequest):
    status = 401
    kind = "AuthenticationError"


class Forbidden(BadRequest):
    status = 403
    kind = "PermissionDeniedError"


class TooLarge(BadRequest):
    status = 413
    kind = "RequestEntityTooLargeError"


class Overloaded(TreadleError):
    status = 503
    kind = "ServiceUnavailableError"


class NotAdmitted(Overloaded):
    """No work was spent on the request: another server may be tried at once."""


class Aborted(TreadleError):
    status = 499
    kind = "AbortedError"


class WorkerLost(TreadleError):
    status = 503
    kind = "ServiceUnavailableError"


class InvariantBroken(TreadleError):
    pass


class ConfigError(TreadleError):
    """A flag or configuration value. The message names the flag, the value and the limit."""


class CheckpointError(TreadleError):
    """A model file that cannot be used. The message names file, tensor, expected and found."""
