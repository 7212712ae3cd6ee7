"""Values that flags take, and what those are told that they do not take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from treadle.bench.flag_values import (
    above_zero,
    count,
    finite,
    json_object,
    not_negative,
    port,
    positive,
    scale,
    share,
    utf8,
)


@pytest.mark.parametrize(
    ("kind", "good", "bad", "message"),
    [
        (count, "0", "-1", "at least 0, got -1"),
        (positive, "1", "0", "at least 1, got 0"),
        (above_zero, "0.5", "0", "above 0, got 0"),
        (above_zero, "inf", "nan", "above 0, got nan"),
        (not_negative, "0", "-0.5", "at least 0, got -0.5"),
        (count, "5", "9" * 30, "at most 2147483647, got 9"),
        (port, "65535", "65536", "from 1 to 65535, got 65536"),
        (finite, "-1", "inf", "finite, got inf"),
        (utf8, "\u00e9", "\udcff", "UTF-8, got"),
        (scale, "1/16", "0/3", "above 0 and no infinity, got 0/3"),
        (scale, "0.5", "1/0", "above 0 and no infinity, got 1/0"),
        (scale, "1", "1e400", "above 0 and no infinity, got 1e400"),
        (share, "1", "1.5", "from 0 to 1, got 1.5"),
        (json_object, "{}", "[1]", "an object, got"),
        (json_object, "{}", "{", "no JSON"),
    ],
)
def test_a_value_out_of_range_is_told_its_limit(
    kind: Callable[[str], object], good: str, bad: str, message: str
):
    kind(good)
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        kind(bad)
