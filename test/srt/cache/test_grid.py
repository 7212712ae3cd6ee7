"""Points of the canonical grid (3.11)."""

from __future__ import annotations

import pytest

from treadle.srt.cache.grid import (
    check_grid,
    count_points,
    default_grid,
    is_grid_point,
    next_point,
    segment_ends,
)
from treadle.srt.errors import ConfigError


@pytest.mark.parametrize(
    ("window", "page", "grid"), [(512, 16, 4096), (128, 64, 1024), (5, 16, 48), (0, 16, 16)]
)
def test_default_is_the_least_multiple_of_the_page_with_eight_windows(
    window: int, page: int, grid: int
):
    assert default_grid(window, page) == grid
    check_grid(grid, window, page)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (4080, "--swa-canonical-grid 4080: must be at least 4096"),
        (4100, "--swa-canonical-grid 4100: must be a multiple of the page size 16"),
    ],
)
def test_other_grids_are_refused_with_flag_value_and_limit(grid: int, words: str):
    with pytest.raises(ConfigError, match=words):
        check_grid(grid, 512, 16)


def test_points_are_rows_of_the_prompt():
    assert [next_point(64, row, 129) for row in (0, 63, 64, 127, 128)] == [64, 64, 128, 128, None]
    assert next_point(64, 0, 64) is None
    assert next_point(0, 5, 99) is None
    points = [row for row in range(200) if is_grid_point(64, row, 129)]
    assert points == [64, 128]
    assert [count_points(64, n) for n in (0, 1, 64, 65, 129)] == [0, 0, 0, 1, 2]
    assert not is_grid_point(0, 64, 129) and count_points(0, 129) == 0


def test_segments_end_below_what_is_computed_and_within_the_prompt():
    assert list(segment_ends(64, 200, 150)) == [64, 128]
    assert list(segment_ends(64, 127, 150)) == [64]
    assert list(segment_ends(64, 128, 128)) == [64, 128]
    assert list(segment_ends(64, 63, 150)) == []
