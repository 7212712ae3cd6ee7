"""Calls that go to every replica at once: flush, abort, profile, pause, loads. Never tried again.

An abort by id goes to the replica that has the request when this router knows, else to all of them:
a router that answered "unknown" would leave orphans decoding.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ..srt.errors import Aborted, BadRequest
from .forward import read_body
from .inflight import Inflight
from .replicas import Replica, Replicas
from .upstream import Broken, Upstream

TIMEOUT_S = 60.0
ASKED_OF_ALL = ("/get_load", "/get_loads", "/v1/loads", "/engine_metrics")
THEIR_NAMES = {"/get_loads": "/v1/loads", "/get_load": "/v1/loads", "/engine_metrics": "/metrics"}


@dataclass(frozen=True, slots=True)
class Part:
    """One replica's answer; status 0 when there was none, and `body` says why."""

    replica: Replica
    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    def shown(self) -> dict[str, object]:
        own = {"worker": self.replica.name, "worker_id": self.replica.id, "status": self.status}
        try:
            return {**own, "body": orjson.loads(self.body)}
        except orjson.JSONDecodeError:
            return {**own, "body": self.body.decode(errors="replace")}


class FanOut:
    def __init__(
        self, replicas: Replicas, upstream: Upstream, inflight: Inflight, max_body_bytes: int
    ) -> None:
        self._replicas = replicas
        self._upstream = upstream
        self._inflight = inflight
        self._max_body_bytes = max_body_bytes

    async def to_all(self, request: Request) -> Response:
        """200 when every replica did it, else the worst status."""
        body = await read_body(request.receive, self._max_body_bytes)
        path = THEIR_NAMES.get(request.url.path, request.url.path)
        query = f"?{request.url.query}" if request.url.query else ""
        parts = await self._ask(list(self._servers()), request, path + query, body)
        failed = [part.status or 502 for part in parts if not part.is_ok]
        content = {"success": not failed, "results": [part.shown() for part in parts]}
        return _json(content, max(failed) if failed else 200)

    async def abort(self, request: Request) -> Response:
        """Raises BadRequest."""
        body = await read_body(request.receive, self._max_body_bytes)
        fields = _object(body)
        rid = fields.get("rid")
        if not fields.get("abort_all") and not (isinstance(rid, str) and rid):
            raise BadRequest("rid or abort_all must be given", param="rid")
        targets = list(self._servers())
        if isinstance(rid, str) and not fields.get("prefix") and not fields.get("abort_all"):
            flight = self._inflight.find(rid)
            replica = None if flight is None else self._replicas.get(flight.replica)
            if flight is not None and replica is None:
                flight.end(Aborted("aborted by the user"))  # it waits here, and is at no replica
                return _json({"success": True, "num_aborted": 1}, 200)
            targets = [replica] if replica is not None else targets
        parts = await self._ask(targets, request, "/abort_request", body)
        refused = [part.status for part in parts if part.status in (401, 403)]
        counts = [_object(part.body).get("num_aborted") for part in parts if part.is_ok]
        total = sum(count for count in counts if isinstance(count, int))
        return _json({"success": not refused, "num_aborted": total}, max(refused, default=200))

    def _servers(self) -> list[Replica]:
        """One of each address: ranks of a server share its control routes."""
        return list({replica.url: replica for replica in self._replicas}.values())

    async def _ask(
        self, replicas: list[Replica], request: Request, path: str, body: bytes
    ) -> list[Part]:
        names = ("authorization", "x-api-key", "content-type")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        calls = [self._one(replica, request.method, path, body, headers) for replica in replicas]
        return list(await asyncio.gather(*calls))

    async def _one(
        self, replica: Replica, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> Part:
        try:
            status, answer = await self._upstream.ask(
                replica, method, path, body, TIMEOUT_S, headers
            )
        except Broken as e:
            return Part(replica, 0, e.reason.encode())
        return Part(replica, status, answer)


def _object(body: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _json(content: object, status: int) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(orjson.dumps(content), status, headers, "application/json")
