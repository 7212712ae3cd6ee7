"""Routes that control and watch: abort, flush, health.

Health answers from state. Only when requests are in flight and nothing has been produced for
`SILENCE_S` does it ask the engine for one token; `/health_generate` always does.
"""

from __future__ import annotations

import asyncio
import time
import uuid

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..errors import BadRequest, Forbidden, TreadleError
from ..tokenizer.frontend import ServingState
from ..tokenizer.generation import Generation
from ..tokenizer.jobs import probe_job
from .bodies import JsonResponse
from .edge import ADMIN
from .generating import while_connected
from .reading import decode, read_body
from .schema import AbortBody
from .service import Service

SILENCE_S = 20.0
PROBE_TIMEOUT_S = 20.0
FLUSH_RETRY_S = 0.05


class ControlRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def abort(self, request: Request) -> Response:
        """Always 200: the request may have ended by itself a moment ago."""
        body = decode(await read_body(request, self._service.config.net.max_body_bytes), AbortBody)
        frontend, message = self._service.frontend, body.abort_message or "aborted by the user"
        if body.abort_all:
            if not request.scope.get(ADMIN, True):
                raise Forbidden("abort_all needs the admin key")
            count = frontend.abort_all(message)
        elif body.rid:
            count = frontend.abort(body.rid, message, is_prefix=bool(body.prefix))
        else:
            raise BadRequest("rid or abort_all must be given", param="rid")
        return JsonResponse({"success": True, "num_aborted": count})

    async def flush(self, request: Request) -> Response:
        """Waits up to `timeout` seconds for running requests to end."""
        timeout = request.query_params.get("timeout", "0")
        try:
            deadline = time.monotonic() + min(max(float(timeout), 0.0), 3600.0)
        except ValueError:
            raise BadRequest(f"timeout must be seconds, got {timeout!r}", param="timeout") from None
        return await while_connected(request, self._flush_until(deadline))

    async def _flush_until(self, deadline: float) -> Response:
        while True:
            done = await self._service.frontend.flush()
            if done.ok:
                return PlainTextResponse("Cache flushed.\n")
            # Also false for a timeout that is not a number, which then means none.
            if not time.monotonic() < deadline:
                return PlainTextResponse(f"Cache not flushed: {done.message}\n", 400)
            await asyncio.sleep(FLUSH_RETRY_S)


class HealthRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def ready(self, request: Request) -> Response:
        serving = self._service.frontend.state is ServingState.SERVING
        return Response(status_code=200 if serving else 503)

    async def health(self, request: Request) -> Response:
        frontend = self._service.frontend
        if frontend.state is not ServingState.SERVING:
            return Response(status_code=503)
        silent_s = time.monotonic() - frontend.last_output_at
        if frontend.num_live == 0 or silent_s < SILENCE_S:
            return Response(status_code=200)
        return Response(status_code=200 if await self._is_alive(for_anybody=True) else 503)

    async def health_generate(self, request: Request) -> Response:
        return Response(status_code=200 if await self._is_alive(for_anybody=False) else 503)

    async def _is_alive(self, *, for_anybody: bool) -> bool:
        """Whether a probe gets its token in time, or, `for_anybody`, whether any request does."""
        frontend = self._service.frontend
        try:
            probe = frontend.submit(
                [probe_job(1)],
                rid=f"HEALTH_CHECK_{uuid.uuid4().hex}",
                is_probe=True,
            )
        except TreadleError:
            return False
        signs = [asyncio.create_task(_first(probe))]
        if for_anybody:
            signs.append(asyncio.create_task(frontend.wait_output()))
        try:
            done, _ = await asyncio.wait(
                signs, timeout=PROBE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            return frontend.state is ServingState.SERVING and any(
                not sign.cancelled() and sign.exception() is None for sign in done
            )
        finally:
            probe.close()
            for sign in signs:
                sign.cancel()
            await asyncio.gather(*signs, return_exceptions=True)


async def _first(probe: Generation) -> None:
    await anext(probe)
