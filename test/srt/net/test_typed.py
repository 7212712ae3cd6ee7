"""Config records as JSON: what may be in them, and that everything else is named in an error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from treadle.srt.config import ServerConfig
from treadle.srt.net.typed import WireError, dump_json, load_json, reader_of


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    colour: Colour


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner
    pair: tuple[int, str]
    many: tuple[Inner, ...]
    maybe: float | None
    table: dict[str, int]


@dataclass(frozen=True, slots=True)
class Empty:
    pass


OUTER = Outer(Inner(Colour.RED), (1, "x"), (Inner(Colour.RED),) * 2, None, {"a": 1})


def test_nested_values_survive():
    got = load_json(Outer, dump_json(OUTER))
    assert got == OUTER
    assert type(got.inner.colour) is Colour


def test_default_and_changed_server_config_survive():
    config = ServerConfig()
    assert load_json(ServerConfig, dump_json(config)) == config
    changed = replace(config, net=replace(config.net, api_key="ß", warmup=False))
    assert load_json(ServerConfig, dump_json(changed)) == changed


def test_class_without_fields_survives():
    assert load_json(Empty, dump_json(Empty())) == Empty()
    with pytest.raises(WireError):
        load_json(Empty, b'{"x":1}')


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b'{"colour":"blue"}',
        b'{"colour":3}',
        b'{"color":"red"}',
        b'{"colour":"red","x":0}',
        b'["red"]',
    ],
)
def test_anything_else_is_a_wire_error(text: bytes):
    with pytest.raises(WireError):
        load_json(Inner, text)


@pytest.mark.parametrize("hint", [object, Any, list[int], int | str, set[int], dict[int, int]])
def test_annotation_outside_the_wire_types_fails_when_the_reader_is_built(hint: Any):
    with pytest.raises(TypeError, match="no reader"):
        reader_of(hint)


@pytest.mark.parametrize("value", [[1, True], [1, "a"], [None], [1.0], [1, [2]], {}, "ab", 3])
def test_list_of_scalars_takes_no_other_type(value: Any):
    reader = reader_of(tuple[int, ...])
    assert reader([1, 2], ()) == (1, 2)
    assert reader([], ()) == ()
    with pytest.raises(WireError):
        reader(value, ())
