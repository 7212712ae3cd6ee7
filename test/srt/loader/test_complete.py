"""Completeness of a checkpoint: each defect names the tensor, what was expected and what found."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.srt.errors import CheckpointError
from treadle.srt.loader.complete import check_complete

NAMES = {"embed": "e.weight", "norm": "n.weight"}
EXPECTED = {"embed": (4, 2), "norm": (2,)}
FOUND = {"e.weight": (4, 2), "n.weight": (2,)}


def check(found: dict[str, tuple[int, ...]]) -> None:
    check_complete(Path("m"), NAMES, EXPECTED, found)


def test_exact_match_passes():
    check(FOUND)


def test_missing_tensors_are_named():
    with pytest.raises(CheckpointError, match=r"m: tensor n\.weight: expected 2 tensors"):
        check({"e.weight": (4, 2)})
    with pytest.raises(CheckpointError, match=r"e\.weight, n\.weight: .* none by 2 of the names"):
        check({})


def test_wrong_shape_is_named():
    with pytest.raises(
        CheckpointError, match=r"e\.weight: expected shape \[4, 2\], found \[2, 4\]"
    ):
        check(FOUND | {"e.weight": (2, 4)})


def test_extra_tensors_are_named_up_to_three():
    extra = {f"x{i}": (1,) for i in range(5)}
    with pytest.raises(CheckpointError, match=r"tensor x0, x1, x2, \.\.\.: .* found 5 more"):
        check(FOUND | extra)
