"""Python types <-> JSON schemas: what a model is told of a function, and what it says back.

    int, float, bool, str, None, list[T], dict[str, T], tuple[T, ...], Literal, Enum, X | Y,
    Annotated[T, "what it is"], dataclasses, TypedDict

Reading is strict, as the model must be told what it did wrong: a value of another type is refused
with its path, except that a whole number is a float.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..client.errors import describe

Json = dict[str, Any]

PLAIN: dict[object, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    dict: {"type": "object"},
    list: {"type": "array"},
    Any: {},
    object: {},
}
KINDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false",
         type(None): "null", dict: "an object", list: "an array"}  # fmt: skip


class SchemaError(TypeError):
    """A type that has no JSON schema."""


class Mismatch(ValueError):
    """A value that is not of the type; the message names its path."""


def schema_of(kind: Any) -> Json:
    """The JSON schema of a type. Raises SchemaError."""
    if isinstance(kind, typing.Hashable) and kind in PLAIN:
        return dict(PLAIN[kind])
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_schema(kind)
    if typing.is_typeddict(kind):
        hints, required = _typed_dict(kind)
        return object_schema(hints, [name for name in hints if name in required])
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    maker = _GENERIC.get(get_origin(kind))
    if maker is None:
        raise SchemaError(f"the type {kind!r} has no JSON schema")
    return maker(kind, get_args(kind))


def object_schema(hints: Mapping[str, Any], required: list[str]) -> Json:
    return {
        "type": "object",
        "properties": {name: schema_of(hint) for name, hint in hints.items()},
        "required": required,
    }


def _typed_dict(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Members and those of them that are required; in annotations that are text Python itself
    misses NotRequired."""
    hints: dict[str, Any] = {}
    required = set(kind.__required_keys__)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        mark = get_origin(hint)
        if mark is typing.NotRequired:
            required.discard(name)
        hints[name] = get_args(hint)[0] if mark in (typing.NotRequired, typing.Required) else hint
    return hints, frozenset(required)


def _dataclass_schema(kind: type) -> Json:
    hints = get_type_hints(kind, include_extras=True)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    required = [field.name for field in fields if is_required(field)]
    schema = object_schema({field.name: hints[field.name] for field in fields}, required)
    return {**schema, "additionalProperties": False}


def is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _annotated(kind: Any, args: tuple[Any, ...]) -> Json:
    words = next((extra for extra in args[1:] if isinstance(extra, str)), None)
    inner = schema_of(args[0])
    return inner if words is None else {**inner, "description": words}


def _literal(kind: Any, args: tuple[Any, ...]) -> Json:
    if all(isinstance(arg, str) for arg in args):
        return {"type": "string", "enum": list(args)}
    return {"enum": list(args)}


def _union(kind: Any, args: tuple[Any, ...]) -> Json:
    return {"anyOf": [schema_of(arg) for arg in args]}


def _array(kind: Any, args: tuple[Any, ...]) -> Json:
    if get_origin(kind) is tuple and (len(args) != 2 or args[1] is not Ellipsis):
        raise SchemaError(f"of tuples only tuple[T, ...] has a JSON schema, got {kind!r}")
    return {"type": "array", "items": schema_of(args[0])}


def _mapping(kind: Any, args: tuple[Any, ...]) -> Json:
    if args[0] is not str:
        raise SchemaError(f"keys of JSON objects are strings, got {kind!r}")
    return {"type": "object", "additionalProperties": schema_of(args[1])}


_GENERIC: dict[Any, Callable[[Any, tuple[Any, ...]], Json]] = {
    typing.Annotated: _annotated,
    Literal: _literal,
    typing.Union: _union,
    types.UnionType: _union,
    list: _array,
    tuple: _array,
    dict: _mapping,
}


def read(kind: Any, value: Any, path: str = "value") -> Any:
    """`value`, decoded JSON, as an instance of `kind`. Raises Mismatch, SchemaError."""
    if kind in (Any, object):
        return value
    if kind in KINDS:
        return _read_plain(kind, value, path)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_dataclass(kind, value, path)
    if typing.is_typeddict(kind):
        return read_fields(*_typed_dict(kind), value, path)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _read_enum(kind, value, path)
    return _read_generic(kind, value, path)


def read_fields(
    hints: Mapping[str, Any], required: frozenset[str], value: Any, path: str
) -> dict[str, Any]:
    """The members of an object; unknown and missing ones are refused."""
    if not isinstance(value, dict):
        raise Mismatch(f"{path} must be an object, got {value!r:.80}")
    if unknown := [name for name in value if name not in hints]:
        known = ", ".join(hints) or "none"
        raise Mismatch(f"{path} has no member {unknown[0]!r}; known are: {known}")
    if missing := [name for name in hints if name in required and name not in value]:
        raise Mismatch(f"{path} needs the member {missing[0]!r}")
    return {name: read(hints[name], value[name], f"{path}.{name}") for name in value}


def _read_plain(kind: Any, value: Any, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _as_float(value, path)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    is_bool = isinstance(value, bool)
    if not isinstance(value, kind) or (is_bool and kind is not bool):
        raise Mismatch(f"{path} must be {KINDS[kind]}, got {value!r:.80}")
    return value


def _as_float(value: int, path: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Mismatch(f"{path} is too large for a number") from None


def _read_dataclass(kind: type, value: Any, path: str) -> Any:
    assert dataclasses.is_dataclass(kind)
    hints = get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    required = frozenset(field.name for field in fields if is_required(field))
    members = read_fields({f.name: hints[f.name] for f in fields}, required, value, path)
    try:
        return kind(**members)
    except Exception as error:  # of its own checks
        raise Mismatch(f"{path}: {describe(error)}") from None


def _read_enum(kind: type[enum.Enum], value: Any, path: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(member.value) for member in kind)
        raise Mismatch(f"{path} must be one of {known}, got {value!r:.80}") from None


def _read_generic(kind: Any, value: Any, path: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return read(args[0], value, path)
    if origin is Literal:
        if value not in args:
            raise Mismatch(f"{path} must be one of {', '.join(map(repr, args))}, got {value!r:.80}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, path)
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise Mismatch(f"{path} must be an array, got {value!r:.80}")
        items = [read(args[0], item, f"{path}[{i}]") for i, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin is dict:
        if not isinstance(value, dict):
            raise Mismatch(f"{path} must be an object, got {value!r:.80}")
        return {key: read(args[1], item, f"{path}.{key}") for key, item in value.items()}
    raise SchemaError(f"the type {kind!r} has no JSON schema")


def _read_union(args: tuple[Any, ...], value: Any, path: str) -> Any:
    reasons = []
    for arg in args:
        try:
            return read(arg, value, path)
        except Mismatch as error:
            reasons.append(str(error))
    raise Mismatch("; or ".join(reasons))
