"""The router's ASGI application: its own routes by table, everything else to the forwarder.

While the router stops, it takes no new requests, and says so on its readiness route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..srt.errors import Aborted, BadRequest, NotAdmitted, NotFound, TreadleError
from ..srt.net.control_paths import CONTROL_PATHS
from ..srt.net.error_bodies import body_for, error_headers
from .access import Access
from .admin import WorkerRoutes, answer
from .affinity import Policy
from .fanout import ASKED_OF_ALL, FanOut
from .forward import Forwarder
from .inflight import Inflight
from .metrics import RouterMetrics
from .replicas import Replicas

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ABORTS = ("/abort_request", "/abort_requests")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True, eq=False)
class Serving:
    """Whether new requests are taken."""

    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class Surface:
    """What the routes work with."""

    forwarder: Forwarder
    fan_out: FanOut
    workers: WorkerRoutes
    replicas: Replicas
    inflight: Inflight
    policy: Policy
    metrics: RouterMetrics
    access: Access
    serving: Serving


class RouterApp:
    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        table = _table(surface)
        self._own: ASGIApp = Starlette(
            routes=[
                Route(path, _guard(handler), methods=methods) for path, methods, handler in table
            ],
            exception_handlers={HTTPException: _http_error},
        )
        self._paths = frozenset(path for path, _, _ in table if "{" not in path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path, surface = scope["path"], self._surface
        is_own = path in self._paths or path.startswith("/workers/")
        is_control = path in CONTROL_PATHS or path.startswith(
            ("/workers", "/add_", "/remove_", "/list_")
        )
        try:
            surface.access.check(path, dict(scope["headers"]), is_control=is_control)
            if not is_own and surface.serving.is_stopping:
                raise NotAdmitted("the router is stopping; try again or elsewhere")
        except TreadleError as e:
            await refusal(e, path)(scope, receive, send)
            return
        await (self._own if is_own else surface.forwarder)(scope, receive, send)


def _table(surface: Surface) -> list[tuple[str, list[str], Handler]]:
    workers, fan_out = surface.workers, surface.fan_out

    async def metrics(request: Request) -> Response:
        state = surface.replicas, surface.inflight, surface.policy
        return Response(surface.metrics.render(*state), media_type=METRICS_TYPE)

    async def ready(request: Request) -> Response:
        has_worker = surface.replicas.fleet.num_eligible > 0
        is_ready = has_worker and not surface.serving.is_stopping
        return answer({"ready": is_ready}, 200 if is_ready else 503)

    async def alive(request: Request) -> Response:
        return answer({"alive": True})

    return [
        *((path, ["GET"], ready) for path in READY),
        ("/liveness", ["GET"], alive),
        ("/metrics", ["GET"], metrics),
        ("/workers", ["GET"], workers.list),
        ("/workers", ["POST"], workers.add),
        ("/workers/{name:path}/drain", ["POST"], workers.drain),
        ("/workers/{name:path}", ["GET"], workers.one),
        ("/workers/{name:path}", ["PUT"], workers.change),
        ("/workers/{name:path}", ["DELETE"], workers.drain),
        ("/list_workers", ["GET"], workers.list_urls),
        ("/add_worker", ["POST"], workers.add_by_query),
        ("/remove_worker", ["POST"], workers.remove_by_query),
        *((path, ["GET", "POST"], fan_out.to_all) for path in CONTROL_PATHS),
        *((path, ["GET"], fan_out.to_all) for path in ASKED_OF_ALL),
        *((path, ["POST"], fan_out.abort) for path in ABORTS),
        ("/v1/models", ["GET"], fan_out.models),
    ]


READY = ("/ready", "/ping", "/readiness", "/health", "/health_generate")


def _guard(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except Aborted:
            return Response(status_code=499)
        except TreadleError as e:
            return refusal(e, request.url.path)

    return guarded


def refusal(error: TreadleError, path: str) -> Response:
    return answer(body_for(error, path), error.status, error_headers(error))


async def _http_error(request: Request, error: Exception) -> Response:
    path = request.url.path
    if isinstance(error, HTTPException) and error.status_code == 405:
        refused = BadRequest(f"{request.method} is not allowed here")
        return answer(body_for(refused, path), 405, dict(error.headers or {}))
    return refusal(NotFound(f"there is no route {path}"), path)
