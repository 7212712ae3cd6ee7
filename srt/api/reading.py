"""Bytes of an HTTP request -> a Struct, or the error that names the field.

Owns the body limit, the content type and the translation of the decoder's errors into paths like
`sampling_params.top_k` or `messages[0].role`.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from ..errors import Aborted, BadRequest, TooLarge

T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
_QUOTED = re.compile(r"(?:unknown|required) field `([^`]*)`")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Raises BadRequest for a content type that is not JSON, TooLarge, Aborted."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind.lower() != "application/json" and not kind.lower().endswith("+json"):
        raise BadRequest(f"content type {kind!r} is not application/json", param="content-type")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
    except ClientDisconnect:
        raise Aborted("the client left while it was sending its request") from None
    return b"".join(chunks)


def decode(data: bytes, kind: type[T]) -> T:
    """Raises BadRequest; its `param` is the path of the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as e:
        raise _bad_field(str(e)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise BadRequest(f"the body is not valid JSON: {e}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def _bad_field(text: str) -> BadRequest:
    path = _PATH.search(text)
    where = path.group(1) if path else ""
    what = text[: path.start()] if path else text
    field = _QUOTED.search(what)
    if field is not None:
        where = f"{where}.{field.group(1)}" if where else field.group(1)
    message = f"{where}: {what}" if where else what
    return BadRequest(message, param=where or None)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the request body is larger than {max_bytes} bytes")
