"""Who may call the router: keys of users and of operators, checked before anything is read.

Without keys of its own the router lets everybody through, and replicas check what their clients
sent, which always travels on as it came.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from ..srt.errors import Forbidden, Unauthorized

OPEN_PATHS = frozenset(
    {"/health", "/health_generate", "/ready", "/ping", "/readiness", "/liveness", "/metrics"}
)


@dataclass(frozen=True, slots=True)
class Access:
    """`user` "" opens the routes of users to all, `admin` "" those of operators to users."""

    user: str = ""
    admin: str = ""

    def check(self, path: str, headers: Mapping[bytes, bytes], *, is_control: bool) -> None:
        """Raises Unauthorized, Forbidden. `headers` has lower-case names."""
        if path in OPEN_PATHS or not (self.user or self.admin):
            return
        given = given_key(headers)
        is_admin = _is_same(given, self.admin)
        is_user = not self.user or is_admin or _is_same(given, self.user)
        if is_control and self.admin and not is_admin:
            if is_user and given:
                raise Forbidden(f"{path} needs the admin key")
            raise Unauthorized("a valid API key is needed")
        if not is_user:
            raise Unauthorized("a valid API key is needed")


def given_key(headers: Mapping[bytes, bytes]) -> bytes:
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")


def _is_same(given: bytes, key: str) -> bool:
    return bool(key) and hmac.compare_digest(given, key.encode())
