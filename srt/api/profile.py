"""/start_profile and /stop_profile: a trace of the workers in a file of the server's machine."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadRequest
from ..messages import Done
from ..profiling import ProfileOptions
from .bodies import JsonResponse
from .later import not_supported
from .reading import decode, read_body
from .schema import ProfileBody
from .service import Service

ACTIVITIES = ("CPU", "GPU", "CUDA")
NAME_CHARS = 128


class ProfileRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def start(self, request: Request) -> Response:
        data = await read_body(request, self._service.config.net.max_body_bytes)
        body = decode(data or b"{}", ProfileBody)
        return _answer(await self._service.frontend.profile(_options(body)))

    async def stop(self, request: Request) -> Response:
        return _answer(await self._service.frontend.profile(None))


def _options(body: ProfileBody) -> ProfileOptions:
    """Raises BadRequest, NotSupported."""
    for name in ("start_step", "profile_by_stage", "merge_profiles", "profile_prefix"):
        if getattr(body, name) not in (None, False, 0, ""):
            raise not_supported(name)
    for activity in body.activities or ():
        if activity not in ACTIVITIES:
            raise not_supported("activities", f"only {', '.join(ACTIVITIES)}")
    if body.num_steps is not None and body.num_steps < 1:
        raise BadRequest(f"num_steps must be at least 1, got {body.num_steps}", param="num_steps")
    name = body.profile_id or f"{time.time():.0f}"
    if not all(c.isalnum() or c in "-_." for c in name) or len(name) > NAME_CHARS:
        raise BadRequest(
            f"profile_id must be letters, digits, -, _ or ., at most {NAME_CHARS} of them",
            param="profile_id",
        )
    return ProfileOptions(
        folder=body.output_dir or str(Path(tempfile.gettempdir()) / "treadle-profile"),
        name=name,
        num_steps=body.num_steps or 0,
        with_stack=bool(body.with_stack),
        record_shapes=bool(body.record_shapes),
    )


def _answer(done: Done) -> Response:
    """400 when one was running already, or none was."""
    if not done.ok:
        raise BadRequest(done.message)
    return JsonResponse({"success": True, "message": done.message})
