"""The HTTP application: the path table, and nothing else.

Routes of features that are not built answer 501 by name; other paths 404, other methods 405, all
with the same body.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import BadRequest, NotFound
from .admin import ControlRoutes, HealthRoutes
from .bodies import JsonResponse, error_body, error_response
from .edge import Edge, Guarded, Handler
from .info import InfoRoutes
from .later import ROUTES, not_supported
from .native import GenerateRoute
from .openai_chat import ChatRoute
from .openai_completions import CompletionRoute
from .service import Service
from .text import TextRoutes

GET = ("GET",)
POST = ("POST",)
ANY = ("GET", "POST", "PUT", "DELETE")

Row = tuple[tuple[str, ...], Handler, str]


def make_app(service: Service, launch_command: str) -> ASGIApp:
    net = service.config.net
    rows = [*_generating(service), *_describing(service, launch_command), *_controlling(service)]
    routes = [
        Route(
            path,
            Guarded(handler, path, service.http_metrics, is_logged=net.log_requests),
            methods=list(methods),
        )
        for methods, handler, path in (*rows, *((ANY, _refuse, path) for path in ROUTES))
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    return Edge(app, net.api_key)


def _generating(service: Service) -> list[Row]:
    return [
        (POST, ChatRoute(service).create, "/v1/chat/completions"),
        (POST, CompletionRoute(service).create, "/v1/completions"),
        (("POST", "PUT"), GenerateRoute(service).create, "/generate"),
    ]


def _describing(service: Service, launch_command: str) -> list[Row]:
    info, text = InfoRoutes(service, launch_command), TextRoutes(service)
    return [
        (GET, info.root, "/"),
        (GET, info.version, "/version"),
        (GET, info.models, "/v1/models"),
        (GET, info.model, "/v1/models/{name:path}"),
        (GET, info.model_info, "/model_info"),
        (GET, info.model_info, "/get_model_info"),
        (GET, info.server_info, "/server_info"),
        (GET, info.server_info, "/get_server_info"),
        (GET, info.metrics, "/metrics"),
        (POST, text.tokenize, "/tokenize"),
        (POST, text.tokenize, "/v1/tokenize"),
        (POST, text.detokenize, "/detokenize"),
        (POST, text.detokenize, "/v1/detokenize"),
    ]


def _controlling(service: Service) -> list[Row]:
    control, health = ControlRoutes(service), HealthRoutes(service)
    return [
        (GET, health.health, "/health"),
        (GET, health.health_generate, "/health_generate"),
        (GET, health.ready, "/ready"),
        (GET, health.ready, "/ping"),
        (("GET", "POST"), control.flush, "/flush_cache"),
        (("GET", "POST"), control.flush, "/reset_prefix_cache"),
        (POST, control.abort, "/abort_request"),
        (POST, control.abort, "/abort_requests"),
    ]


async def _refuse(request: Request) -> ASGIApp:
    raise not_supported(request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return error_response(NotFound(f"there is no route {request.url.path}"))
    body = error_body(BadRequest(f"{request.method} is not allowed here"))
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JsonResponse(body, status, headers)
