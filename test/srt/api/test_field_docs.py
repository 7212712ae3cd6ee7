"""Every field of a request is described, and the ranges in the document are those enforced."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from test.serving import Bench
from treadle.srt.api import endpoint_table as table
from treadle.srt.api.endpoint import Endpoint
from treadle.srt.api.openapi import make_document

REQUESTS = {
    e.path: e for e in vars(table).values() if isinstance(e, Endpoint) and e.request is not None
}
DOCUMENT = make_document(list(REQUESTS.values()), "")
SCHEMAS = DOCUMENT["components"]["schemas"]
VALID: dict[str, dict[str, Any]] = {path: dict(e.example) for path, e in REQUESTS.items()}
NEEDS = {"top_logprobs": {"logprobs": True}}


def reachable(name: str, seen: set[str]) -> set[str]:
    if name not in seen:
        seen.add(name)
        for other in SCHEMAS:
            if f"schemas/{other}'" in repr(SCHEMAS[name]):
                reachable(other, seen)
    return seen


def outside() -> Iterator[tuple[str, str, Any]]:
    """(path, field, value) for values next to every range of a body's own fields."""
    for path, endpoint in REQUESTS.items():
        assert endpoint.request is not None
        for field, schema in SCHEMAS[endpoint.request.__name__]["properties"].items():
            for option in schema.get("anyOf", [schema]):
                yield from ((path, field, value) for value in beyond(option))
    for field, schema in SCHEMAS["SamplingFields"]["properties"].items():
        for option in schema.get("anyOf", [schema]):
            yield from (("/generate", f"sampling_params.{field}", v) for v in beyond(option))


def beyond(option: dict[str, Any]) -> Iterator[Any]:
    is_count = option.get("type") == "integer"
    if "minimum" in option:
        low = option["minimum"]
        yield low - 1 if is_count else math.nextafter(low, -math.inf)
    if "exclusiveMinimum" in option:
        yield option["exclusiveMinimum"]
    if "maximum" in option:
        high = option["maximum"]
        yield high + 1 if is_count else math.nextafter(high, math.inf)
    if "maxItems" in option:
        yield ["x"] * (option["maxItems"] + 1)


@pytest.mark.parametrize("path", REQUESTS)
def test_every_field_of_a_request_is_described(path: str):
    request = REQUESTS[path].request
    assert request is not None
    missing = [
        f"{name}.{field}"
        for name in sorted(reachable(request.__name__, set()))
        for field, schema in SCHEMAS[name].get("properties", {}).items()
        if "description" not in schema
    ]
    assert not missing


@pytest.mark.parametrize(("path", "field", "value"), list(outside()))
async def test_value_next_to_a_range_is_refused(bench: Bench, path: str, field: str, value: Any):
    name = field.removeprefix("sampling_params.")
    own = {name: value, **NEEDS.get(name, {})}
    body = {**VALID[path], **({"sampling_params": own} if name != field else own)}
    response = await bench.post(path, body)
    assert response.status_code == 400, response.text
    error = response.json()
    assert error["param"] == field if "param" in error else field in error["error"]["message"]


def test_the_ranges_are_many():
    assert len(list(outside())) > 50
