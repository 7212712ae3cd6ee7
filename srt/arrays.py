"""Empty arrays of the two kinds that messages are made of."""

from __future__ import annotations

from array import array


def ids() -> array[int]:
    """An empty id array (int32)."""
    return array("i")


def floats() -> array[float]:
    """An empty array of float64."""
    return array("d")
