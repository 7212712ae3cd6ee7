"""The HTTP application: every endpoint of the table bound to its handler, and nothing else.

Routes of features that are not built answer 501 by name; other paths 404, other methods 405, all
with the same body.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..errors import BadRequest, NotFound
from ..net.error_bodies import body_for
from . import endpoint_table as table
from .admin import ControlRoutes, HealthRoutes
from .anthropic import MessagesRoute
from .bodies import JsonResponse, error_response
from .dashboard import DashboardRoutes
from .docs import DocRoutes
from .edge import Edge, Guarded, Handler, Keys
from .endpoint import Endpoint
from .info import InfoRoutes
from .isolation import Isolated
from .later import not_supported
from .native import GenerateRoute
from .openai_chat import ChatRoute
from .openai_completions import CompletionRoute
from .parsing import ParsingRoutes
from .profile import ProfileRoutes
from .request_log import LogStyle
from .service import Service
from .sessions import SessionRoutes
from .text import TextRoutes

Row = tuple[Endpoint, Handler]


def make_app(service: Service, launch_command: str) -> ASGIApp:
    app: ASGIApp = Starlette(
        routes=[
            _route(service, endpoint, path, handler)
            for endpoint, handler in _rows(service, launch_command)
            for path in endpoint.paths
        ],
        exception_handlers={HTTPException: _http_error},
    )
    api = service.config.api
    if api.cache_isolation == "per-key":
        app = Isolated(app)
    edge: ASGIApp = Edge(app, Keys(service.config.net.api_key, api.admin_api_key))
    origins = [origin.strip() for origin in api.cors_origins.split(",") if origin.strip()]
    return _with_cors(edge, origins) if origins else edge


def _route(service: Service, endpoint: Endpoint, path: str, handler: Handler) -> Route:
    net = service.config.net
    style = LogStyle(net.log_requests_level, net.log_requests_format == "json")
    guarded = Guarded(handler, path, service.http_metrics, style if net.log_requests else None)
    return Route(path, guarded, methods=list(endpoint.methods))


def _rows(service: Service, launch_command: str) -> list[Row]:
    rows = [
        *_generating(service),
        *_describing(service, launch_command),
        *_controlling(service),
        *((endpoint, _refuse) for endpoint in table.NOT_BUILT),
    ]
    endpoints = [table.OPENAPI, table.DOCS, *(endpoint for endpoint, _ in rows)]
    docs = DocRoutes(endpoints, service.version)
    return [(table.OPENAPI, docs.openapi), (table.DOCS, docs.page), *rows]


def _with_cors(app: ASGIApp, origins: list[str]) -> ASGIApp:
    """Pages of `origins` may call; keys travel in headers, so no cookies are allowed."""
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=table.ANY,
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after"],
    )


def _generating(service: Service) -> list[Row]:
    messages = MessagesRoute(service)
    return [
        (table.CHAT, ChatRoute(service).create),
        (table.MESSAGES, messages.create),
        (table.COUNT_TOKENS, messages.count),
        (table.COMPLETION, CompletionRoute(service).create),
        (table.GENERATE, GenerateRoute(service).create),
        (table.EMBEDDINGS, _no_embeddings),
    ]


def _describing(service: Service, launch_command: str) -> list[Row]:
    info, text = InfoRoutes(service, launch_command), TextRoutes(service)
    parsing, dashboard = ParsingRoutes(service), DashboardRoutes(service)
    return [
        (table.ROOT, info.root),
        (table.VERSION, info.version),
        (table.LOADS, info.loads),
        (table.MODELS, info.models),
        (table.MODEL_CARD, info.model),
        (table.MODEL_INFO, info.model_info),
        (table.SERVER_INFO, info.server_info),
        (table.METRICS, info.metrics),
        (table.DASHBOARD, dashboard.page),
        (table.DASHBOARD_DATA, dashboard.data),
        (table.TOKENIZE, text.tokenize),
        (table.DETOKENIZE, text.detokenize),
        (table.PARSE_CALLS, parsing.calls),
        (table.SEPARATE_REASONING, parsing.reasoning),
    ]


def _controlling(service: Service) -> list[Row]:
    profile = ProfileRoutes(service)
    control, health = ControlRoutes(service), HealthRoutes(service)
    return [
        (table.HEALTH, health.health),
        (table.HEALTH_GENERATE, health.health_generate),
        (table.READY, health.ready),
        (table.FLUSH, control.flush),
        (table.ABORT, control.abort),
        (table.RELEASE, SessionRoutes(service).release),
        (table.START_PROFILE, profile.start),
        (table.STOP_PROFILE, profile.stop),
    ]


async def _no_embeddings(request: Request) -> ASGIApp:
    raise BadRequest("the model generates text; it has no embeddings", param="model")


async def _refuse(request: Request) -> ASGIApp:
    raise not_supported(request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    path = request.url.path
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return error_response(NotFound(f"there is no route {path}"), path)
    refusal = BadRequest(f"{request.method} is not allowed here")
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JsonResponse(body_for(refusal, path), status, headers)
