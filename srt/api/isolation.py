"""Whose cached prefixes a request may hit: everybody's, or those of its own API key (T29).

A salt in a body is the client's word and can be forged. With `--cache-isolation per-key` the server
itself puts the caller's key, hashed, into the cache scope of every request; a salt still adds to
it. The name is that of the key, not of the header that carried it. Requests without a key share one
scope of their own. Keys are only as good as what checks them: this server with --api-key, or a
gateway in front of it.
"""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

OWNER = "treadle.cache_owner"  # key in the ASGI scope, which no client can write
DIGEST_BYTES = 16


class Isolated:
    """Around the routes: names the owner of each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            key = given_key(dict(scope["headers"]))
            scope[OWNER] = blake2b(key, digest_size=DIGEST_BYTES).hexdigest()
        await self._app(scope, receive, send)


def given_key(headers: dict[bytes, bytes]) -> bytes:
    """The API key of a request, from one of the two headers that clients use; b"" for none."""
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")


def owner_fields(request: HTTPConnection) -> tuple[tuple[str, str], ...]:
    """Typed fields of the cache scope (T26): one, or none without isolation."""
    owner = request.scope.get(OWNER)
    return () if owner is None else (("owner", owner),)
