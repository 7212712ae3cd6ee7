"""Spans of running requests in a step: decode rows, paced ones, then rows of prompts.

Drafts take what rows are left when each paced request has its own, save a page for prompts.
"""

from __future__ import annotations

from ..cache.grid import is_grid_point
from ..cache.replay import ReplayRule
from .plan import StepBuilder, span_end, stop_of
from .request import Request
from .running import Rows


def add_rows(builder: StepBuilder, rows: Rows, rule: ReplayRule, page_size: int) -> None:
    """Rows of running requests. One that gets none keeps its cursor (rule T38)."""
    builder.add_singles(rows.singles)
    own = sum(request.known - request.next for request in rows.paced)
    spare = max(0, builder.budget - own - page_size)
    for request in (*rows.paced, *rows.parked):
        num_drafts = min(spare, len(request.drafts))
        if not _add_span(builder, request, num_drafts, rule, page_size):
            return
        spare -= num_drafts


def _add_span(
    builder: StepBuilder, request: Request, num_drafts: int, rule: ReplayRule, page_size: int
) -> bool:
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
    builder.add_span(request, end, num_drafts)
    return True
