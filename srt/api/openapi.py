"""Endpoints -> the OpenAPI 3.1 document.

Schemas are msgspec's of the very Structs that requests are decoded with; what a field means and its
range are added from `field_docs.py`. Nothing here knows a route.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from .edge import OPEN_PATHS
from .endpoint import EVENTS, JSON, Endpoint, Reply
from .field_docs import FIELDS, FieldDoc

Node = dict[str, Any]

REF = "#/components/schemas/{name}"
REFUSALS = {
    400: "A value that the client can mend: the message names field, value and limit.",
    401: "The API key is missing or wrong.",
    403: "This key does not open this route.",
    404: "No such model.",
    413: "The body is larger than the server takes.",
    500: "A fault of the server; the message holds the id under which its log has it.",
    501: "A feature that this build does not have.",
    503: "The queue is full, or the server is starting or draining; try again or elsewhere.",
}
SECURITY: Node = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def make_document(endpoints: Sequence[Endpoint], version: str) -> Node:
    kinds = list(_kinds(endpoints))
    found, components = msgspec.json.schema_components(kinds, ref_template=REF)
    schemas = {repr(kind): schema for kind, schema in zip(kinds, found, strict=True)}
    for name in {e.request.__name__ for e in endpoints if e.request is not None}:
        _describe(name, components, set())
    paths: Node = {}
    for endpoint in endpoints:
        for path in endpoint.paths:
            paths[_plain(path)] = {
                method.lower(): _operation(endpoint, method, path, schemas)
                for method in endpoint.methods
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "treadle", "version": version},
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items())), "securitySchemes": SECURITY},
    }


def _kinds(endpoints: Sequence[Endpoint]) -> Iterator[Any]:
    """Every type that a schema is needed of, once."""
    seen = set()
    for endpoint in endpoints:
        of_replies = (reply.kind for reply in endpoint.replies)
        for kind in (endpoint.request, endpoint.event, endpoint.error, *of_replies):
            if kind is not None and repr(kind) not in seen:
                seen.add(repr(kind))
                yield kind


def _plain(path: str) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _operation(endpoint: Endpoint, method: str, path: str, schemas: Node) -> Node:
    operation: Node = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()} {_plain(path)}").strip("_"),
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "description": _about(endpoint, path),
        "responses": _responses(endpoint, path, schemas),
    }
    parameters = [*_path_parameters(path), *_query_parameters(endpoint)]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.request is not None:
        content = {"schema": schemas[repr(endpoint.request)], "example": dict(endpoint.example)}
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    if path not in OPEN_PATHS:
        operation["security"] = [{}, *({name: []} for name in SECURITY)]
    return operation


def _about(endpoint: Endpoint, path: str) -> str:
    alias = "" if path == endpoint.path else f"Another name of `{_plain(endpoint.path)}`. "
    return (alias + endpoint.about).strip()


def _path_parameters(path: str) -> list[Node]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)", path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[Node]:
    return [
        {
            "name": query.name,
            "in": "query",
            "description": query.what,
            "schema": msgspec.json.schema(query.kind),
        }
        for query in endpoint.query
    ]


def _responses(endpoint: Endpoint, path: str, schemas: Node) -> Node:
    responses: Node = {}
    error = schemas[repr(endpoint.error)]
    for reply in endpoint.replies:
        _reply(reply, responses, schemas)
    if endpoint.event is not None:
        responses["200"]["content"][EVENTS] = {
            "schema": {"type": "string", "description": "`data: ` lines of JSON, see x-event"},
            "x-event": schemas[repr(endpoint.event)],
        }
    needs_key = () if path in OPEN_PATHS else (401,)
    for status in (*endpoint.refusals, *needs_key, 500):
        response = responses.setdefault(str(status), {"description": REFUSALS[status]})
        response.setdefault("content", {})[JSON] = {"schema": error}
    return dict(sorted(responses.items()))


def _reply(reply: Reply, responses: Node, schemas: Node) -> None:
    response = responses.setdefault(str(reply.status), {"description": reply.what})
    if reply.media:
        schema = {"type": "string"} if reply.kind is None else schemas[repr(reply.kind)]
        response.setdefault("content", {})[reply.media] = {"schema": schema}


def _describe(name: str, components: Node, seen: set[str]) -> None:
    """Adds what is known of the fields of a request and of the Structs inside it."""
    if name in seen:
        return
    seen.add(name)
    for field, schema in components[name].get("properties", {}).items():
        doc = FIELDS.get(field)
        if doc is not None:
            _apply(doc, schema)
        for inner in re.findall(r"'#/components/schemas/(\w+)'", repr(schema)):
            _describe(inner, components, seen)


def _apply(doc: FieldDoc, schema: Node) -> None:
    schema.setdefault("description", doc.what)
    for option in cast(list[Node], schema.get("anyOf", [schema])):
        limits = doc.limits.get(option.get("type", ""), {})
        option.update(limits)
