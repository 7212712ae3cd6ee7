"""Spans of running requests in a step: decode rows, rows with a grammar, then rows of prompts."""

from __future__ import annotations

from ..cache.grid import is_grid_point
from ..cache.replay import ReplayRule
from .plan import StepBuilder, span_end, stop_of
from .request import Request
from .running import Rows


def add_rows(builder: StepBuilder, rows: Rows, rule: ReplayRule, page_size: int) -> None:
    """Rows of running requests. One that gets none keeps its cursor (rule T38)."""
    builder.add_singles(rows.singles)
    for request in (*rows.masked, *rows.parked):
        if not _add_span(builder, request, rule, page_size):
            return


def _add_span(builder: StepBuilder, request: Request, rule: ReplayRule, page_size: int) -> bool:
    """Rows of a prompt or behind a grammar's last token; False when they have to wait for another
    step. At a point of its grid a canonical request starts its windows anew, by a replay like that
    of a hit."""
    start, hit = request.next, request.hit
    is_point = start > hit and is_grid_point(request.shape.grid, start, request.prompt_len)
    if is_point:
        start, hit = rule.start(request.shape, start), start
    end = span_end(
        start,
        stop_of(request, max(start, hit)),
        hit,
        builder.budget,
        page_size,
        may_cut_replay=True,
    )
    if end is None:
        return False
    if is_point:
        builder.rewind(request, start, hit)
    builder.add_span(request, end)
    return True
