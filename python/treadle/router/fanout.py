"""Calls that go to every replica at once: flush, abort, profile, pause, loads, the list of models.
Never tried again.

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
from .errors import NoReplica
from .forward import read_body
from .inflight import Inflight
from .outcomes import Broken
from .replicas import Replica, Replicas
from .upstream import Upstream

TIMEOUT_S = 60.0
LIST_TIMEOUT_S = 5.0
ASKED_OF_ALL = ("/get_load", "/get_loads", "/v1/loads", "/engine_metrics")
THEIR_NAMES = {"/get_loads": "/v1/loads", "/get_load": "/v1/loads", "/engine_metrics": "/metrics"}
_NO_STORE = {"cache-control": "no-store"}


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
        parts = await self._ask(self._servers(), request, path + query, body)
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
        targets = self._servers()
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

    async def models(self, request: Request) -> Response:
        """Every model that some ready replica serves, each once. When none lists any, the answer
        of one of them. Raises NoReplica."""
        ready = self._servers(ready_only=True)
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        parts = await self._ask(ready, request, path, b"", LIST_TIMEOUT_S)
        lists = [_object(part.body) for part in parts if part.is_ok]
        if lists:
            cards: dict[str, object] = {}
            for card in (card for found in lists for card in _cards(found)):
                cards.setdefault(str(card.get("id")), card)
            return _json({**lists[0], "data": list(cards.values())}, 200)
        for part in parts:
            if part.status:
                return Response(part.body, part.status, _NO_STORE, "application/json")
        raise NoReplica("no replica is ready; try again later")

    def _servers(self, *, ready_only: bool = False) -> list[Replica]:
        """One of each address: ranks of a server share its control routes."""
        known = [
            replica
            for replica in self._replicas
            if not ready_only or self._replicas.fleet.is_eligible(replica.name)
        ]
        return list({replica.url: replica for replica in known}.values())

    async def _ask(
        self,
        replicas: list[Replica],
        request: Request,
        path: str,
        body: bytes,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Part]:
        names = ("authorization", "x-api-key", "content-type")
        headers = {name: request.headers[name] for name in names if name in request.headers}

        async def one(replica: Replica) -> Part:
            try:
                status, answer = await self._upstream.ask(
                    replica, request.method, path, body, timeout_s, headers
                )
            except Broken as e:
                return Part(replica, 0, e.reason.encode())
            return Part(replica, status, answer)

        return list(await asyncio.gather(*map(one, replicas)))


def _object(body: bytes) -> dict[str, object]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _cards(found: dict[str, object]) -> list[dict[str, object]]:
    cards = found.get("data")
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []


def _json(content: object, status: int) -> Response:
    return Response(orjson.dumps(content), status, _NO_STORE, "application/json")
