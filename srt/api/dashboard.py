"""GET /dashboard: a page that shows the server at work, and the data that it asks for.

The page itself holds no data and needs no key; it asks for one when `/dashboard/data` wants it. A
snapshot is taken of the scheduler at most every `FRESH_S`, however many look on, and is bounded
there, so that nobody's tokens wait for it. Names of requests and sessions are shown to who may
control the server; others see a digest. With prefixes isolated by key a caller is one tenant of
several, so only the admin key shows them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ..errors import Overloaded
from ..snapshot import RequestView, SessionView, Snapshot
from .bodies import JsonResponse
from .dashboard_page import PAGE, POLICY
from .edge import ADMIN
from .service import Service
from .tree_view import TreeView, view_of

FRESH_S = 0.5
TIMEOUT_S = 5.0

Shown = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Look:
    """`at`: Unix time, seconds."""

    at: float
    snapshot: Snapshot
    tree: TreeView


class DashboardRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._asked_at = float("-inf")
        self._newest: asyncio.Task[Look] | None = None

    async def page(self, request: Request) -> Response:
        return HTMLResponse(PAGE, headers={"content-security-policy": POLICY})

    async def data(self, request: Request) -> Response:
        """Raises WorkerLost, and Overloaded when the scheduler does not answer in time."""
        service, look = self._service, await self._look()
        snapshot = look.snapshot
        shown = _in_clear if self._may_name(request) else _digest
        counters = snapshot.counters
        gauges = {**snapshot.gauges, "ended_unconfirmed": float(service.frontend.num_ended)}
        return JsonResponse(
            {
                "time": look.at,
                "version": service.version,
                "model": service.model.served_name,
                "page_size": service.config.cache.page_size,
                "window": service.model.window,
                "max_running_requests": service.config.sched.max_running,
                "metrics": service.metrics.samples(counters, gauges, service.facts()),
                "requests": [_request(view, shown) for view in snapshot.requests],
                "sessions": [_session(view, shown) for view in snapshot.sessions],
                "tree": look.tree,
            }
        )

    def _may_name(self, request: Request) -> bool:
        api = self._service.config.api
        is_shared = api.cache_isolation == "per-key" and not api.admin_api_key
        return bool(request.scope.get(ADMIN, True)) and not is_shared

    async def _look(self) -> Look:
        """One question at a time; an answer serves all who ask within `FRESH_S`."""
        now, task = time.monotonic(), self._newest
        is_over = task is not None and task.done() and now - self._asked_at >= FRESH_S
        if task is None or is_over or (task.done() and task.exception() is not None):
            self._asked_at = now
            task = self._newest = asyncio.create_task(self._take())
        try:
            return await asyncio.wait_for(asyncio.shield(task), TIMEOUT_S)
        except TimeoutError:
            raise Overloaded(f"the scheduler did not answer within {TIMEOUT_S:g} s") from None

    async def _take(self) -> Look:
        snapshot = await self._service.frontend.snapshot()
        return Look(time.time(), snapshot, view_of(snapshot.tree))


def _request(view: RequestView, shown: Shown) -> RequestView:
    session = None if view.session is None else shown(view.session)
    return replace(view, rid=shown(view.rid), session=session)


def _session(view: SessionView, shown: Shown) -> SessionView:
    return replace(view, session=shown(view.session))


def _in_clear(name: str) -> str:
    return name


def _digest(name: str) -> str:
    return "#" + blake2b(name.encode(), digest_size=4).hexdigest()
