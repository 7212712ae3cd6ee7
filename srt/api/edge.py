"""The layers around every endpoint: keys and request ids outside, errors and counting inside.

Both are plain ASGI, so they cost no task and pass streams on as they are. `Guarded` is the top of
every endpoint and the one place where an unknown exception becomes a 500.
"""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Aborted, Forbidden, TreadleError, Unauthorized
from ..metrics import HttpMetrics
from ..net.control_paths import CONTROL_PATHS
from ..net.error_bodies import is_anthropic
from .bodies import error_response, internal_error
from .isolation import given_key
from .request_log import LogStyle, RequestRecord

Handler = Callable[[Request], Awaitable[ASGIApp]]

# The dashboard is a page without data; what it asks for needs the key.
OPEN_PATHS = frozenset({"/health", "/health_generate", "/ready", "/ping", "/metrics", "/dashboard"})
ADMIN_PATHS = frozenset(CONTROL_PATHS)
ADMIN = "treadle.admin"  # key in the scope: whether the caller may control
MAX_REQUEST_ID_BYTES = 256
REQUEST_ID = b"x-request-id"


@dataclass(frozen=True, slots=True)
class Keys:
    """`user` "" opens the routes of users to all, `admin` "" those that control to users."""

    user: str
    admin: str

    def check(self, path: str, given: bytes) -> bool:
        """Whether the caller may control the server. Raises Unauthorized, Forbidden."""
        if not self.admin and not self.user:
            return True
        is_admin = _is_same(given, self.admin)
        is_user = not self.user or is_admin or _is_same(given, self.user)
        if path in ADMIN_PATHS and self.admin and not is_admin:
            if is_user and given:
                raise Forbidden(f"{path} needs the admin key")
            raise Unauthorized("a valid API key is needed")
        if not is_user:
            raise Unauthorized("a valid API key is needed")
        return is_admin or not self.admin


def _is_same(given: bytes, key: str) -> bool:
    return bool(key) and hmac.compare_digest(given, key.encode())


class Edge:
    """Around the whole app. Echoes the client's request id, or gives the request one."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        echo = [(REQUEST_ID, _request_id(headers.get(REQUEST_ID)))]
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if is_anthropic(path):
            echo.append((b"request-id", echo[0][1]))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *echo]
            await send(message)

        app = self._app
        if path not in OPEN_PATHS and scope["method"] != "OPTIONS":
            try:
                scope[ADMIN] = self._keys.check(path, given_key(headers))
            except TreadleError as e:
                app = error_response(e, path)
        await app(scope, receive, send_with_id)


def _request_id(given: bytes | None) -> bytes:
    if given and len(given) <= MAX_REQUEST_ID_BYTES and all(32 < byte < 127 for byte in given):
        return given
    return uuid.uuid4().hex.encode()


class Guarded:
    """An endpoint as an ASGI app. `pattern` is its route, under which it is counted."""

    def __init__(
        self, handler: Handler, pattern: str, metrics: HttpMetrics, style: LogStyle | None
    ) -> None:
        """`style` None: no line per request."""
        self._handler = handler
        self._pattern = pattern
        self._metrics = metrics
        self._style = style

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method, record = scope["method"], None
        if self._style is not None:
            record = RequestRecord(self._style, self._pattern, receive, send)
            receive, send = record.receive, record.send
        self._metrics.started(self._pattern, method)
        try:
            response = await self._respond(Request(scope, receive))
            if response is not None:
                await response(scope, receive, send_and_note)
        finally:
            self._metrics.ended(self._pattern, method, status)
            if record is not None:
                record.write(status)

    async def _respond(self, request: Request) -> ASGIApp | None:
        """None: the client is gone and nobody reads an answer."""
        try:
            return await self._handler(request)
        except Aborted:
            return None
        except TreadleError as e:
            error = e if e.status != 500 else internal_error(e)
            return error_response(error, self._pattern)
        except Exception as e:  # the top of a request
            return error_response(internal_error(e), self._pattern)
