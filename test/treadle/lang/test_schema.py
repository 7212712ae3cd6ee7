"""Types as JSON schemas, and values of those types."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from treadle.lang.schema import Mismatch, SchemaError, read, schema_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


class Named(TypedDict):
    name: str
    age: NotRequired[int]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"enum": ["red", "blue"]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Any, {}),
    ],
)
def test_types_have_schemas(kind, schema):
    assert schema_of(kind) == schema


def test_members_with_defaults_are_not_required():
    assert schema_of(Point) == {
        "type": "object",
        "properties": {
            "x": {"type": "integer"},
            "y": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema_of(Named)["required"] == ["name"]


@pytest.mark.parametrize("kind", [bytes, tuple[int, str], dict[int, str], set[int]])
def test_types_that_json_does_not_have_are_refused(kind):
    with pytest.raises(SchemaError):
        schema_of(kind)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (float, 3, 3.0),
        (int, 3.0, 3),
        (Point, {"x": 1, "tags": ["a"]}, Point(1, 0.0, ["a"])),
        (list[Point], [{"x": 1}], [Point(1)]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (Color | None, "red", Color.RED),
        (Color | None, None, None),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Named, {"name": "x"}, {"name": "x"}),
        (Annotated[str, "w"], "x", "x"),
        (Any, [1, "a"], [1, "a"]),
    ],
)
def test_values_are_read(kind, value, found):
    assert read(kind, value) == found


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "3", "value must be an integer, got '3'"),
        (int, True, "must be an integer, got True"),
        (bool, 1, "must be true or false, got 1"),
        (int, 3.5, "must be an integer, got 3.5"),
        (list[int], [1, "a"], r"value\[1\] must be an integer"),
        (Point, {"y": 1}, "value needs the member 'x'"),
        (Point, {"x": 1, "z": 2}, "has no member 'z'; known are: x, y, tags"),
        (Point, {"x": 1, "tags": [1]}, r"value.tags\[0\] must be a string"),
        (Color, "green", "must be one of 'red', 'blue', got 'green'"),
        (Literal["a"], "b", "must be one of 'a'"),
        (int | str, [], "an integer.*; or .*a string"),
        (dict[str, int], [], "must be an object"),
    ],
)
def test_a_wrong_value_is_told_with_its_path(kind, value, words):
    with pytest.raises(Mismatch, match=words):
        read(kind, value)
