"""Data that others wrote and that has another form than it must have: an error that says where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_TOKENS = 1 << 24  # of one prompt or answer: a longer one is a mistake in the file
_OTHER_FORM = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@contextmanager
def told(where: str) -> Iterator[None]:
    """For code that only takes such data apart. Raises ValueError."""
    try:
        yield
    except _OTHER_FORM as error:
        raise ValueError(f"{where}: {reason(error)}") from None


def reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error.args[0]!r}"
    if isinstance(error, ValueError):
        return str(error)
    return f"not of the expected form ({error})"


def length(value: float) -> int:
    """Tokens, rounded, at least 1. Raises ValueError."""
    if not value <= MAX_TOKENS:
        raise ValueError(f"a length of {value} tokens: at most {MAX_TOKENS}")
    return max(1, round(value))
