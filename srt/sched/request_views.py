"""Requests as values for who looks on: those that run, then those that wait, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ..snapshot import RequestView
from .request import Request


def request_views(
    running: Iterable[Request], waiting: Iterable[Request], now: float, limit: int
) -> tuple[RequestView, ...]:
    """At most `limit` of each."""
    chosen = (*islice(running, limit), *islice(waiting, limit))
    return tuple(_view(request, now) for request in chosen)


def _view(request: Request, now: float) -> RequestView:
    return RequestView(
        rid=request.rid,
        session=request.session,
        state=request.state.value,
        prompt_tokens=request.prompt_len,
        computed_tokens=request.computed,
        output_tokens=request.num_output,
        cached_tokens=request.cached,
        replayed_tokens=request.replayed,
        approx=request.approx,
        age_s=now - request.arrived,
    )
