"""The table of endpoints against the app: what is served is documented, and the reverse."""

from __future__ import annotations

import re

import pytest
from starlette.routing import Route

from test.documented import TABLE
from test.serving import Bench
from treadle.srt.api.edge import OPEN_PATHS
from treadle.srt.api.endpoint import Endpoint


async def test_every_route_of_the_app_is_in_the_document_and_the_reverse(bench: Bench):
    document = (await bench.client.get("/openapi.json")).json()
    documented = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    served = {
        (method, re.sub(r":\w+\}", "}", route.path))
        for route in bench.app._app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == documented
    assert served == {
        (method, re.sub(r":\w+\}", "}", path))
        for endpoint in TABLE
        for path in endpoint.paths
        for method in endpoint.methods
    }


@pytest.mark.parametrize("endpoint", TABLE, ids=lambda e: e.path)
def test_endpoint_says_what_it_takes_and_answers(endpoint: Endpoint):
    assert endpoint.summary
    assert endpoint.replies or endpoint.refusals
    assert (endpoint.request is None) == (not endpoint.example)
    if endpoint.request is not None:
        assert {400, 413} <= set(endpoint.refusals)


def test_open_paths_exist():
    assert {path for endpoint in TABLE for path in endpoint.paths} >= OPEN_PATHS


async def test_examples_are_answered(bench: Bench):
    for endpoint in TABLE:
        if endpoint.request is not None:
            for path in endpoint.paths:
                response = await bench.post(path, dict(endpoint.example))
                assert response.status_code == 200, (path, response.text)
