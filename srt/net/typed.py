"""JSON values -> frozen dataclasses, by their annotations; the readers are built once per class.

Owns what a value of ours may consist of: bool, int, float, str, StrEnum, nested dataclasses,
tuples (fixed and `X, ...`), `dict[str, X]`, `X | None`, NewTypes of these, and arrays: of int as
int32, of float as float64. JSON only holds an index into the raw frames that travel beside it.
Invariant: a reader either returns a value of the annotated type or raises `WireError`. JSON has no
non-finite numbers, so a float that was NaN or infinite arrives as NaN.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
import types
import typing
from array import array
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import orjson

from ..errors import InvariantBroken

T = TypeVar("T")
Frames = Sequence[bytes]
Reader = Callable[[Any, Frames], Any]

TYPECODES = {int: "i", float: "d"}  # of arrays: int32 and float64


class _ArrayHint:
    """Stands for `array` while annotations are read: the real one is subscriptable from 3.12 on."""

    def __init__(self, item: type) -> None:
        self.typecode = TYPECODES[item]

    def __class_getitem__(cls, item: type) -> _ArrayHint:
        return cls(item)

    def __call__(self) -> None:
        """`typing` takes only what is callable for a type."""


class WireError(InvariantBroken):
    """Bytes that this code never writes, or a value that cannot be sent."""


def dump_json(value: object) -> bytes:
    """A dataclass without arrays as JSON. Raises WireError where JSON cannot hold a value."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError) as e:
        raise WireError(f"cannot encode {type(value).__name__}: {e}") from None


def load_json(cls: type[T], data: bytes) -> T:
    """The dataclass `cls` that `dump_json` wrote. Raises WireError."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise WireError(f"not JSON: {e}") from None
    return typing.cast(T, reader_of(cls)(value, ()))


def reader_of(hint: Any) -> Reader:
    """Raises TypeError for an annotation outside the list above: a bug at import time."""
    if isinstance(hint, typing.NewType):
        return reader_of(hint.__supertype__)
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(typing.cast(type, hint))
    origin = typing.get_origin(hint)
    if origin is not None:
        return _generic_reader(hint, origin)
    if isinstance(hint, _ArrayHint):
        return _array_reader(hint.typecode)
    if hint is float:
        return _read_float
    if hint in (bool, int, str):
        return _scalar_reader(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _enum_reader(hint)
    raise TypeError(f"no reader for {hint!r}")


def _generic_reader(hint: Any, origin: Any) -> Reader:
    args = typing.get_args(hint)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return _items_reader(args[0])
        return _tuple_reader(tuple(reader_of(a) for a in args))
    if origin is dict and args[0] is str:
        return _dict_reader(reader_of(args[1]))
    if origin in (types.UnionType, typing.Union) and len(args) == 2 and args[1] is type(None):
        return _optional_reader(reader_of(args[0]))
    raise TypeError(f"no reader for {hint!r}")


def _dataclass_reader(cls: type) -> Reader:
    hints = typing.get_type_hints(cls, localns={"array": _ArrayHint})
    names = tuple(f.name for f in dataclasses.fields(cls))
    if len(names) < 2:
        return _small_reader(cls, names, tuple(reader_of(hints[n]) for n in names))
    readers = tuple(reader_of(hints[n]) for n in names)
    exact = tuple(_supertype(hints[n]) for n in names)
    get = operator.itemgetter(*names)

    def read(value: Any, frames: Frames) -> Any:
        if type(value) is not dict or len(value) != len(names):
            raise _wrong(cls.__name__, value)
        try:
            fields = get(value)
        except KeyError as e:
            raise WireError(f"{cls.__name__}: no field {e}") from None
        # One comparison for a class of plain scalars: a third of the time of a call per field.
        if tuple(map(type, fields)) == exact:
            return cls(*fields)
        return cls(
            *[
                value if type(value) is kind else reader(value, frames)
                for reader, kind, value in zip(readers, exact, fields, strict=True)
            ]
        )

    return read


def _small_reader(cls: type, names: tuple[str, ...], readers: tuple[Reader, ...]) -> Reader:
    """For classes of no or one field, where `itemgetter` has another result type."""

    def read(value: Any, frames: Frames) -> Any:
        if type(value) is not dict or tuple(value) != names:
            raise _wrong(cls.__name__, value)
        return cls(*[r(value[n], frames) for r, n in zip(readers, names, strict=True)])

    return read


def _supertype(hint: Any) -> Any:
    return hint.__supertype__ if isinstance(hint, typing.NewType) else hint


def _scalar_reader(cls: type) -> Reader:
    def read(value: Any, frames: Frames) -> Any:
        if type(value) is not cls:
            raise _wrong(cls.__name__, value)
        return value

    return read


def _read_float(value: Any, frames: Frames) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _wrong("float", value) from None
    if value is None:
        return float("nan")
    raise _wrong("float", value)


def _array_reader(typecode: str) -> Reader:
    size = array(typecode).itemsize

    def read(value: Any, frames: Frames) -> array[Any]:
        """`value` is the number of the frame, from 0 for the first one after the JSON."""
        if type(value) is not int or not 0 <= value < len(frames):
            raise _wrong("frame number", value)
        if len(frames[value]) % size:
            raise WireError(f"frame of {len(frames[value])} bytes for items of {size}")
        data: array[Any] = array(typecode)
        data.frombytes(frames[value])
        if sys.byteorder == "big":
            data.byteswap()
        return data

    return read


def _enum_reader(cls: type[StrEnum]) -> Reader:
    def read(value: Any, frames: Frames) -> StrEnum:
        try:
            return cls(value)
        except ValueError:
            raise _wrong(cls.__name__, value) from None

    return read


def _items_reader(hint: Any) -> Reader:
    kind = _supertype(hint)
    return _scalars_reader(kind) if kind in (bool, int, str) else _list_reader(reader_of(hint))


def _scalars_reader(cls: type) -> Reader:
    """One comparison for the whole list, as for a class of plain scalars."""

    def read(value: Any, frames: Frames) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _wrong("array", value)
        if list(map(type, value)).count(cls) < len(value):
            raise _wrong(f"array of {cls.__name__}", value)
        return tuple(value)

    return read


def _list_reader(item: Reader) -> Reader:
    def read(value: Any, frames: Frames) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _wrong("array", value)
        return tuple([item(v, frames) for v in value])

    return read


def _tuple_reader(items: tuple[Reader, ...]) -> Reader:
    def read(value: Any, frames: Frames) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(items):
            raise _wrong(f"array of {len(items)}", value)
        return tuple([r(v, frames) for r, v in zip(items, value, strict=True)])

    return read


def _dict_reader(item: Reader) -> Reader:
    def read(value: Any, frames: Frames) -> dict[str, Any]:
        if type(value) is not dict:
            raise _wrong("object", value)
        return {k: item(v, frames) for k, v in value.items()}

    return read


def _optional_reader(item: Reader) -> Reader:
    def read(value: Any, frames: Frames) -> Any:
        return None if value is None else item(value, frames)

    return read


def _wrong(expected: str, value: Any) -> WireError:
    return WireError(f"expected {expected}, found {type(value).__name__} {str(value)[:40]!r}")
