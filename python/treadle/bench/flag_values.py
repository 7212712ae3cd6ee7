"""Values of command-line flags: checked, with the limit in the message."""

from __future__ import annotations

import argparse
from fractions import Fraction

import orjson


def count(text: str) -> int:
    return _checked(int(text), text, at_least=0)


def positive(text: str) -> int:
    return _checked(int(text), text, at_least=1)


def above_zero(text: str) -> float:
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return float(text)


def not_negative(text: str) -> float:
    if not float(text) >= 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return float(text)


def scale(text: str) -> float:
    """A fraction, such as 1/16, is exact."""
    if not Fraction(text) > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return float(Fraction(text))


def share(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0 to 1, got {text}")
    return float(text)


def json_object(text: str) -> dict[str, object]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"must be an object, got {text[:80]}")
    return found


def _checked(value: int, text: str, *, at_least: int) -> int:
    if value < at_least:
        raise argparse.ArgumentTypeError(f"must be at least {at_least}, got {text}")
    return value
