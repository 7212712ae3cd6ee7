"""The canonical grid: where every run of a prompt starts its windows anew (3.11).

    rows      0 ............ Q ............ 2Q ........ prompt_len ... sampled
    cold      |= segment 0 ==|= segment 1 ==|= segment 2 =|- - - - - ->
                         |~~~| replayed |~~~|
    hit 2Q                              |~~~|= segment 2 =|- - - - - ->

At each multiple of Q inside a prompt the rings are emptied and the rows before it are replayed, as
if a hit ended there. So what is computed for a segment is a function of the tokens up to its end:
it does not matter who ran it, in which chunks, or whether the run began with a hit. Generated text
goes on from the last segment without a grid; it is prefilled anew when it comes back in a prompt.

Points are rows that a prompt has: one that ends at a multiple of Q has none there. `grid` is Q in
tokens, 0 for a shape without one.
"""

from __future__ import annotations

from ..errors import ConfigError

GRID_WINDOWS = 8  # Q is at least this many windows: replayed rows stay few beside new ones
FLAG = "--swa-canonical-grid"


def default_grid(window: int, page_size: int) -> int:
    """The smallest legal grid: the least multiple of the page size with `GRID_WINDOWS` windows."""
    return -(-max(GRID_WINDOWS * window, page_size) // page_size) * page_size


def check_grid(grid: int, window: int, page_size: int) -> None:
    """Raises: ConfigError naming flag, value and limit."""
    least = default_grid(window, page_size)
    if grid % page_size:
        raise ConfigError(f"{FLAG} {grid}: must be a multiple of the page size {page_size}")
    if grid < least:
        raise ConfigError(
            f"{FLAG} {grid}: must be at least {least}, {GRID_WINDOWS} windows of {window} tokens "
            f"in pages of {page_size}"
        )


def next_point(grid: int, row: int, prompt_len: int) -> int | None:
    """The lowest point above `row`; None when the prompt has no further one."""
    if not grid:
        return None
    point = (row // grid + 1) * grid
    return point if point < prompt_len else None


def is_grid_point(grid: int, row: int, prompt_len: int) -> bool:
    return bool(grid) and 0 < row < prompt_len and row % grid == 0


def count_points(grid: int, prompt_len: int) -> int:
    return max(0, prompt_len - 1) // grid if grid else 0


def segment_ends(grid: int, upto: int, prompt_len: int) -> range:
    """Ends of the whole segments of the prompt below `upto`: what may be published."""
    return range(grid, min(upto, prompt_len) + 1, grid)
