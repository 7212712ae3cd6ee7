"""The JSON response, and responses of errors, whose bodies are those of `net/error_bodies.py`.

Internal failures carry an id that is in the log too, never a trace.
"""

from __future__ import annotations

import logging
import uuid

import orjson
from starlette.responses import Response

from ..errors import TreadleError
from ..net.error_bodies import body_for, error_body, error_headers

log = logging.getLogger(__name__)


class JsonResponse(Response):
    """`content` is anything that orjson can write, or JSON bytes as they are."""

    media_type = "application/json"

    def __init__(
        self, content: object, status_code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(content, status_code, {"cache-control": "no-store", **(headers or {})})

    def render(self, content: object) -> bytes:
        return content if isinstance(content, bytes) else orjson.dumps(content)


def error_response(error: TreadleError, path: str) -> JsonResponse:
    """In the dialect of `path`."""
    return JsonResponse(body_for(error, path), error.status, error_headers(error))


def internal_error(error: BaseException) -> TreadleError:
    """Logs what only a bug can raise and returns what a client may know of it."""
    error_id = uuid.uuid4().hex
    log.error("internal_error id=%s", error_id, exc_info=error)
    return TreadleError(f"internal error; the log has it under id {error_id}")


def error_event(error: TreadleError) -> bytes:
    """The JSON of an error inside a stream whose status was already sent."""
    return orjson.dumps(error_body(error))
