"""A layer around the app under test: every status it answers must stand in the document.

So each test of a route is a test of the document too.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.srt.api import endpoint_table
from treadle.srt.api.endpoint import Endpoint
from treadle.srt.api.openapi import make_document

TABLE = [
    value
    for value in (*vars(endpoint_table).values(), *endpoint_table.NOT_BUILT)
    if isinstance(value, Endpoint)
]


@cache
def known() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Patterns of paths with their operations; plain paths go before those with parameters."""
    paths = make_document(TABLE, "")["paths"]
    plain_first = sorted(paths, key=lambda path: "{" in path)
    return [(re.compile(re.sub(r"\{\w+\}", ".+", p) + "$"), paths[p]) for p in plain_first]


class Documented:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        item = next((item for p, item in known() if p.match(scope["path"])), {})
        operation = item.get(scope["method"].lower())

        async def send_and_check(message: Message) -> None:
            if operation is not None and message["type"] == "http.response.start":
                status = str(message["status"])
                assert status in operation["responses"], (scope["method"], scope["path"], status)
            await send(message)

        await self._app(scope, receive, send_and_check)
