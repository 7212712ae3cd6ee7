"""GET /openapi.json and GET /docs: the document of all endpoints, made once at start."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .bodies import JsonResponse
from .docs_page import POLICY, render
from .endpoint import Endpoint
from .openapi import make_document


class DocRoutes:
    def __init__(self, endpoints: Sequence[Endpoint], version: str) -> None:
        document = make_document(endpoints, version)
        self._json = orjson.dumps(document)
        self._page = render(document)

    async def openapi(self, request: Request) -> Response:
        return JsonResponse(self._json)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._page, headers={"content-security-policy": POLICY})
