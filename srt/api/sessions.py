"""POST /release_session: a client says that nothing more will come in a session.

A session is a hint (D18), so this is one too: what the engine keeps for the session alone goes
before what it keeps for others, and its cached prefixes stay what they are. It is no part of
server-held sessions (`/open_session`), which this build does not have.
"""

from __future__ import annotations

from starlette.requests import Request

from ..errors import BadRequest
from .bodies import JsonResponse
from .generating import MAX_NAME_CHARS
from .isolation import owner_fields
from .reading import decode, read_body
from .schema import ReleaseBody
from .service import Service

MAX_SESSIONS = 4096  # of one HTTP request


class SessionRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def release(self, request: Request) -> JsonResponse:
        """200 also for sessions that nobody knows. Raises BadRequest."""
        data = await read_body(request, self._service.config.net.max_body_bytes)
        sessions = _names(decode(data, ReleaseBody))
        self._service.frontend.release_sessions(sessions, owner_fields(request))
        return JsonResponse({"success": True})


def _names(body: ReleaseBody) -> list[str]:
    given = [body.session_id] if isinstance(body.session_id, str) else body.session_id or []
    if not given or not all(given):
        raise BadRequest("session_id must name at least one session", param="session_id")
    if len(given) > MAX_SESSIONS:
        raise BadRequest(
            f"session_id has {len(given)} names, at most {MAX_SESSIONS}", param="session_id"
        )
    if any(len(name) > MAX_NAME_CHARS for name in given):
        raise BadRequest(
            f"session_id is longer than {MAX_NAME_CHARS} characters", param="session_id"
        )
    return given
