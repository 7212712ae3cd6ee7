"""The document is well formed and says what the Structs say."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson
import pytest

from treadle.srt.api import endpoint_table as table
from treadle.srt.api.endpoint import Endpoint, Query, Reply
from treadle.srt.api.openapi import make_document


class Inner(msgspec.Struct):
    top_p: float | None = None


class Outer(msgspec.Struct):
    inner: list[Inner]
    temperature: float | None = None


class Answer(msgspec.Struct):
    temperature: float


ENDPOINT = Endpoint(
    ("POST", "PUT"), ("/a/{name:path}", "/b/{name:path}"), "Tag", "Does it",
    request=Outer, example={"inner": []}, replies=(Reply(kind=Answer), Reply(202, media="")),
    refusals=(400,), event=Answer, query=(Query("q", float, "What."),),
)  # fmt: skip


@pytest.fixture
def document() -> dict[str, Any]:
    return make_document([ENDPOINT], "1.2.3")


def test_aliases_and_methods_are_operations_of_their_own(document: dict[str, Any]):
    assert document["info"]["version"] == "1.2.3"
    assert set(document["paths"]) == {"/a/{name}", "/b/{name}"}
    operations = [o for item in document["paths"].values() for o in item.values()]
    assert len({o["operationId"] for o in operations}) == 4
    assert "`/a/{name}`" in document["paths"]["/b/{name}"]["post"]["description"]
    parameters = operations[0]["parameters"]
    assert [(p["name"], p["in"]) for p in parameters] == [("name", "path"), ("q", "query")]


def test_statuses_and_bodies(document: dict[str, Any]):
    responses = document["paths"]["/a/{name}"]["post"]["responses"]
    assert list(responses) == ["200", "202", "400", "401", "500"]
    assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "content" not in responses["202"]
    error = responses["400"]["content"]["application/json"]["schema"]
    assert error == {"$ref": "#/components/schemas/ErrorBody"}


def test_fields_are_described_in_requests_and_inside_them_only(document: dict[str, Any]):
    schemas = document["components"]["schemas"]
    number = schemas["Inner"]["properties"]["top_p"]["anyOf"][0]
    assert number == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert schemas["Outer"]["properties"]["temperature"]["description"]
    assert "description" not in schemas["Answer"]["properties"]["temperature"]


def test_open_paths_promise_no_401():
    document = make_document([table.HEALTH, table.VERSION], "")
    assert set(document["paths"]["/health"]["get"]["responses"]) == {"200", "500", "503"}
    assert "401" in document["paths"]["/version"]["get"]["responses"]


def test_every_reference_resolves_and_the_document_is_json():
    endpoints = [value for value in vars(table).values() if isinstance(value, Endpoint)]
    document = make_document(endpoints, "")
    text = orjson.dumps(document).decode()
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= set(document["components"]["schemas"])
    assert len(names) > 30
