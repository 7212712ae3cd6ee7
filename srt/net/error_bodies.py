"""What an error looks like in HTTP, in the dialect of its path.

    {"error": {message, type, param, code}, "object": "error", message, type, param, code}
    {"type": "error", "error": {type, message}}       below /v1/messages, as Anthropic

The first is a superset: OpenAI SDKs read the nested keys, scripts of other servers the flat ones.
"""

from __future__ import annotations

from ..errors import NotAdmitted, Overloaded, TreadleError, Unauthorized, WorkerLost

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


def is_anthropic(path: str) -> bool:
    return path == ANTHROPIC_PATH or path.startswith(f"{ANTHROPIC_PATH}/")


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


def anthropic_error_body(error: TreadleError) -> dict[str, object]:
    kind = ANTHROPIC_TYPES.get(error.status, "api_error")
    message = error.message
    if isinstance(error, WorkerLost):  # names processes of ours
        message = "the engine stopped; try again or elsewhere"
    return {"type": "error", "error": {"type": kind, "message": message}}


def body_for(error: TreadleError, path: str) -> dict[str, object]:
    """In the dialect of `path`."""
    return anthropic_error_body(error) if is_anthropic(path) else error_body(error)


def error_headers(error: TreadleError) -> dict[str, str]:
    headers = {}
    if isinstance(error, Overloaded | WorkerLost):
        headers["retry-after"] = RETRY_AFTER_S
    if isinstance(error, NotAdmitted | WorkerLost):  # nothing of it runs on here
        headers["x-not-admitted"] = "1"
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    return headers
