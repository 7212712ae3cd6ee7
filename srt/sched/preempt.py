"""Choice of the request that gives up its pages (rules T42, T46): when a running one cannot grow,
and when one of so much more priority waits that it takes a running one's place.
"""

from __future__ import annotations

from collections.abc import Sequence

from .request import Request

PROGRESS_TOKENS = 64  # what a resumed request may produce before it is a victim again


def choose_victim(running: Sequence[Request]) -> Request | None:
    """Lowest priority, then fewest sampled, then longest prompt, then youngest. None: keep all.

    At least one request is kept. Resumed requests that have not yet progressed are spared, unless
    only such are left. Nothing in `running` may be finished or have an unanswered row.
    """
    if len(running) < 2:
        return None
    open_to = [request for request in running if request.len >= request.spared_until]
    return min(open_to or running, key=_worth)


def choose_outranked(running: Sequence[Request], priority: int, gap: int) -> Request | None:
    """Who makes place for a waiting request: the same order among those outranked by more than
    `gap`. Only such are chosen, so two requests can never preempt each other in turn.
    """
    outranked = [request for request in running if priority - request.priority > gap]
    open_to = [request for request in outranked if request.len >= request.spared_until]
    return min(open_to or outranked, key=_worth, default=None)


def spare(request: Request) -> int:
    """Known length up to which a request that is preempted now will be spared after its resume."""
    return min(request.len + PROGRESS_TOKENS, request.max_known)


def _worth(request: Request) -> tuple[int, int, int, int]:
    return request.priority, request.num_output, -request.prompt_len, -request.arrival
