"""Bodies of errors and the JSON response.

    {"error": {message, type, param, code}, "object": "error", message, type, param, code}
    {"type": "error", "error": {type, message}}       below /v1/messages, as Anthropic

The first is a superset: OpenAI SDKs read the nested keys, scripts of other servers the flat ones.
Internal failures carry an id that is in the log too, never a trace.
"""

from __future__ import annotations

import logging
import uuid

import orjson
from starlette.responses import Response

from ..errors import NotAdmitted, Overloaded, TreadleError, Unauthorized, WorkerLost

log = logging.getLogger(__name__)

RETRY_AFTER_S = "1"
ANTHROPIC_PATH = "/v1/messages"
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    501: "invalid_request_error",
    503: "overloaded_error",
}


class JsonResponse(Response):
    """`content` is anything that orjson can write, or JSON bytes as they are."""

    media_type = "application/json"

    def __init__(
        self, content: object, status_code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(content, status_code, {"cache-control": "no-store", **(headers or {})})

    def render(self, content: object) -> bytes:
        return content if isinstance(content, bytes) else orjson.dumps(content)


def error_body(error: TreadleError) -> dict[str, object]:
    fields: dict[str, object] = {
        "message": error.message,
        "type": error.kind,
        "param": error.param,
        "code": error.code or error.status,
    }
    if isinstance(error, Unauthorized):
        return {"error": "Unauthorized", "object": "error", **fields}
    return {"error": fields, "object": "error", **fields}


def is_anthropic(path: str) -> bool:
    return path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/")


def anthropic_error_body(error: TreadleError) -> dict[str, object]:
    kind = ANTHROPIC_TYPES.get(error.status, "api_error")
    message = error.message
    if isinstance(error, WorkerLost):  # names processes of ours
        message = "the engine stopped; try again or elsewhere"
    return {"type": "error", "error": {"type": kind, "message": message}}


def error_response(error: TreadleError, path: str) -> JsonResponse:
    """In the dialect of `path`."""
    headers = {}
    if isinstance(error, Overloaded | WorkerLost):
        headers["retry-after"] = RETRY_AFTER_S
    if isinstance(error, NotAdmitted):
        headers["x-not-admitted"] = "1"
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    body = anthropic_error_body(error) if is_anthropic(path) else error_body(error)
    return JsonResponse(body, error.status, headers)


def internal_error(error: BaseException) -> TreadleError:
    """Logs what only a bug can raise and returns what a client may know of it."""
    error_id = uuid.uuid4().hex
    log.error("internal_error id=%s", error_id, exc_info=error)
    return TreadleError(f"internal error; the log has it under id {error_id}")


def error_event(error: TreadleError) -> bytes:
    """The JSON of an error inside a stream whose status was already sent."""
    return orjson.dumps(error_body(error))
