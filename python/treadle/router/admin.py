"""The operator's routes: list, add, change, drain and remove workers, which is what replicas are
called there.

    POST   /workers               {"url": ...}   202; takes requests once its probe succeeds
    GET    /workers, /workers/ID
    PUT    /workers/ID            {"labels": {...}, "api_key": ...}
    POST   /workers/ID/drain, DELETE /workers/ID   202; gone when its last request has ended

ID is a worker's id or address. A drained worker that a watched file or name still lists stays away
until it has left the list once, or is added here. `/add_worker?url=`, `/remove_worker?url=` and
`/list_workers` are older spellings. What only other routers have (priorities, prefill and decode
workers) is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import unquote

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ..srt.errors import BadRequest, NotFound, NotSupported
from .forward import read_body
from .lifecycle import State
from .replicas import Address, Replica, Replicas

MAX_BODY_BYTES = 1 << 20
ONLY = {  # fields of other routers and the one value that means nothing here
    "worker_type": "regular",
    "connection_mode": "http",
    "runtime_type": "sglang",
    "priority": 50,
    "cost": 1.0,
    "bootstrap_port": None,
}
TEXTS = ("url", "api_key", "model_id")


class WorkerRoutes:
    def __init__(self, replicas: Replicas, api_key: str) -> None:
        """`api_key`: what the router shows workers that were added without one."""
        self._replicas = replicas
        self._api_key = api_key

    async def list(self, request: Request) -> Response:
        rows = [self._show(replica) for replica in self._replicas]
        stats = {"regular_count": len(rows), "prefill_count": 0, "decode_count": 0}
        return answer({"workers": rows, "total": len(rows), "stats": stats})

    async def list_urls(self, request: Request) -> Response:
        return answer({"urls": [replica.name for replica in self._replicas]})

    async def add(self, request: Request) -> Response:
        fields = await _read(request)
        if "url" not in fields:
            raise BadRequest("url must be given", param="url")
        return self._add(str(fields["url"]), fields)

    async def add_by_query(self, request: Request) -> Response:
        return self._add(request.query_params.get("url", ""), {})

    async def one(self, request: Request) -> Response:
        return answer(self._show(self._find(request.path_params["name"])))

    async def change(self, request: Request) -> Response:
        replica = self._find(request.path_params["name"])
        fields = await _read(request)
        if "url" in fields and fields["url"] != replica.name:
            raise BadRequest("a worker's address is its name; add another one", param="url")
        _apply(replica, fields)
        return answer(self._show(replica))

    async def drain(self, request: Request) -> Response:
        return self._drain(self._find(request.path_params["name"]))

    async def remove_by_query(self, request: Request) -> Response:
        return self._drain(self._find(request.query_params.get("url", "")))

    def _add(self, url: str, fields: Mapping[str, object]) -> Response:
        try:
            address = Address.parse(url)
        except ValueError as e:
            raise BadRequest(str(e), param="url") from None
        replica = self._replicas.add(address, api_key=self._api_key)
        _apply(replica, fields)
        place = {"location": f"/workers/{replica.id}"}
        content = {"status": "accepted", "worker_id": replica.id, "url": replica.name}
        return answer(content, 202, place)

    def _drain(self, replica: Replica) -> Response:
        shown = {"status": "accepted", "worker_id": replica.id, "url": replica.name}
        self._replicas.dismiss(replica.name, time.monotonic())
        return answer(shown, 202)

    def _find(self, name: str) -> Replica:
        name = unquote(name)
        for replica in self._replicas:
            if name in (replica.id, replica.name):
                return replica
        raise NotFound(f"there is no worker {name!r}", param="worker_id", code="worker_not_found")

    def _show(self, replica: Replica) -> dict[str, object]:
        fleet = self._replicas.fleet
        return {
            "id": replica.id,
            "url": replica.name,
            "model_id": replica.model or None,
            "priority": ONLY["priority"],
            "cost": ONLY["cost"],
            "worker_type": "regular",
            "connection_mode": "http",
            "is_healthy": replica.life.state is State.READY,
            "status": replica.life.state.value,
            "breaker": replica.life.breaker.value,
            "weight": replica.life.weight(time.monotonic()),
            "load": fleet.requests(replica.name),
            "load_tokens": fleet.load(replica.name),
            "labels": replica.labels,
        }


async def _read(request: Request) -> dict[str, object]:
    """Raises BadRequest, NotSupported."""
    try:
        fields = orjson.loads(await read_body(request.receive, MAX_BODY_BYTES))
    except orjson.JSONDecodeError as e:
        raise BadRequest(f"the body is not valid JSON: {e}") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object")
    for name, value in fields.items():
        if name in ONLY and value not in (None, ONLY[name]):
            raise NotSupported(f"{name} {value!r} is not supported", param=name)
        if name not in ONLY and name not in (*TEXTS, "labels"):
            raise BadRequest(f"unknown field {name!r}", param=name)
        if name in TEXTS and not isinstance(value, str):
            raise BadRequest(f"{name} must be a string", param=name)
    return fields


def _apply(replica: Replica, fields: Mapping[str, object]) -> None:
    labels = fields.get("labels")
    if labels is not None:
        if not isinstance(labels, dict):
            raise BadRequest("labels must be an object of strings", param="labels")
        replica.labels = {str(key): str(value) for key, value in labels.items()}
    if "api_key" in fields:
        replica.api_key = str(fields["api_key"])
    if "model_id" in fields:
        replica.model = str(fields["model_id"])


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    own = {"cache-control": "no-store", **(headers or {})}
    return Response(orjson.dumps(content), status, own, "application/json")
