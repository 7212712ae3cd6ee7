"""Values of command-line flags: checked, with the limit in the message."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import orjson

Number = TypeVar("Number", int, float)
DEFAULT = "default: %(default)s"  # what argparse says of a flag that explains itself
MAX_INT = (1 << 31) - 1


def count(text: str) -> int:
    return _checked(text, _whole(text), lambda value: value >= 0, "at least 0")


def positive(text: str) -> int:
    return _checked(text, _whole(text), lambda value: value >= 1, "at least 1")


def above_zero(text: str) -> float:
    return _checked(text, float(text), lambda value: value > 0, "above 0")


def not_negative(text: str) -> float:
    return _checked(text, float(text), lambda value: value >= 0, "at least 0")


def utf8(text: str) -> str:
    """What JSON can hold: bytes of the command line that are no text are not."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise argparse.ArgumentTypeError(f"must be UTF-8, got {text!r}")
    return text


def scale(text: str) -> float:
    """A number or a fraction, such as 1/16."""
    try:
        value = float(Fraction(text))
    except ArithmeticError:  # 1/0, or more than a float holds
        value = math.nan
    return _checked(text, value, lambda value: 0 < value < math.inf, "above 0 and no infinity")


def finite(text: str) -> float:
    return _checked(text, float(text), math.isfinite, "finite")


def port(text: str) -> int:
    return _checked(text, int(text), lambda value: 0 < value < 1 << 16, "from 1 to 65535")


def share(text: str) -> float:
    return _checked(text, float(text), lambda value: 0 <= value <= 1, "from 0 to 1")


def json_object(text: str) -> dict[str, object]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"must be an object, got {text[:80]}")
    return found


def _whole(text: str) -> int:
    return _checked(text, int(text), lambda value: value <= MAX_INT, f"at most {MAX_INT}")


def _checked(text: str, value: Number, is_right: Callable[[Number], bool], limit: str) -> Number:
    if not is_right(value):
        raise argparse.ArgumentTypeError(f"must be {limit}, got {text}")
    return value
