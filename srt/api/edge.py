"""The layers around every endpoint: keys and request ids outside, errors and counting inside.

Both are plain ASGI, so they cost no task and pass streams on as they are. `Guarded` is the top of
every endpoint and the one place where an unknown exception becomes a 500.
"""

from __future__ import annotations

import hmac
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Aborted, TreadleError, Unauthorized
from ..log import event
from ..metrics import HttpMetrics
from .bodies import error_response, internal_error

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[ASGIApp]]

OPEN_PATHS = frozenset({"/health", "/health_generate", "/ready", "/ping", "/metrics"})
MAX_REQUEST_ID_BYTES = 256
REQUEST_ID = b"x-request-id"


class Edge:
    """Around the whole app. Echoes the client's request id, or gives the request one."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._api_key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        echo = (REQUEST_ID, _request_id(headers.get(REQUEST_ID)))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), echo]
            await send(message)

        app = self._app
        if self._api_key and not self._is_allowed(scope, headers):
            app = error_response(Unauthorized("a valid API key is needed"))
        await app(scope, receive, send_with_id)

    def _is_allowed(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        if scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS":
            return True
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        return hmac.compare_digest(given, self._api_key)


def _request_id(given: bytes | None) -> bytes:
    if given and len(given) <= MAX_REQUEST_ID_BYTES and all(32 < byte < 127 for byte in given):
        return given
    return uuid.uuid4().hex.encode()


class Guarded:
    """An endpoint as an ASGI app. `pattern` is its route, under which it is counted."""

    def __init__(
        self, handler: Handler, pattern: str, metrics: HttpMetrics, *, is_logged: bool
    ) -> None:
        self._handler = handler
        self._pattern = pattern
        self._metrics = metrics
        self._is_logged = is_logged

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method, started = scope["method"], time.monotonic()
        self._metrics.started(self._pattern, method)
        try:
            response = await self._respond(Request(scope, receive))
            if response is not None:
                await response(scope, receive, send_and_note)
        finally:
            self._metrics.ended(self._pattern, method, status)
            if self._is_logged:
                seconds = time.monotonic() - started
                fields: dict[str, object] = {"path": self._pattern, "status": status, "s": seconds}
                log.info(event("http_request", fields))

    async def _respond(self, request: Request) -> ASGIApp | None:
        """None: the client is gone and nobody reads an answer."""
        try:
            return await self._handler(request)
        except Aborted:
            return None
        except TreadleError as e:
            return error_response(e if e.status != 500 else internal_error(e))
        except Exception as e:  # the top of a request
            return error_response(internal_error(e))
