"""What one endpoint promises its clients: a value of the route table and of the OpenAPI document.

Every route of the app is bound to one of these, so a route that is not documented cannot be served.
`Kind` is a Struct, or any type that msgspec can describe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .answers import ErrorBody

Kind = Any

JSON = "application/json"
TEXT = "text/plain"
HTML = "text/html"
EVENTS = "text/event-stream"

READING = (400, 413)  # refusals of every route that reads a body
GENERATING = (*READING, 404, 501, 503)


@dataclass(frozen=True, slots=True)
class Reply:
    """One status with its body. `kind` None: text, or with `media` "" no body at all."""

    status: int = 200
    kind: Kind = None
    media: str = JSON
    what: str = "Success."


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    kind: type
    what: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`paths` are in the router's spelling; all after the first are aliases. `refusals` are the
    statuses with an error body beyond 401 (any route that needs a key) and 500 (any route).
    `event` is one event of the stream that the route sends when the body has `stream: true`.
    """

    methods: tuple[str, ...]
    paths: tuple[str, ...]
    tag: str
    summary: str
    about: str = ""
    request: type[msgspec.Struct] | None = None
    example: Mapping[str, object] = field(default_factory=dict)
    replies: tuple[Reply, ...] = ()
    refusals: tuple[int, ...] = ()
    event: Kind = None
    query: tuple[Query, ...] = ()
    error: Kind = ErrorBody

    @property
    def path(self) -> str:
        return self.paths[0]
