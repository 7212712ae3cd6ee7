"""WaitingQueue: requests without pages and slot, in arrival order within a priority.

A preempted request comes back to the place its arrival gives it. Policies may try requests in
another order; two things bound how long that can hold one back: a request that waits for row budget
is first in the next step (rule B15), and so is the oldest one after `PATIENCE` later arrivals have
been admitted before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from .policy import QueueView, in_order
from .request import Request

PATIENCE = 64  # admissions


def _place(request: Request) -> tuple[int, int]:
    return -request.priority, request.arrival


class WaitingQueue:
    __slots__ = ("_policy", "_requests", "_first")

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._requests: list[Request] = []
        self._first: Request | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    @property
    def head(self) -> Request | None:
        """The oldest of the highest priority."""
        return self._requests[0] if self._requests else None

    @property
    def tail(self) -> Request | None:
        """The youngest of the lowest priority."""
        return self._requests[-1] if self._requests else None

    def push(self, request: Request) -> None:
        place = bisect_left(self._requests, _place(request), key=_place)
        self._requests.insert(place, request)

    def remove(self, request: Request) -> None:
        """The request leaves, admitted or finished."""
        del self._requests[bisect_left(self._requests, _place(request), key=_place)]
        if self._first is request:
            self._first = None

    def admitted(self, request: Request) -> None:
        """Remove it, and count that the oldest was overtaken when it was not the oldest."""
        self.remove(request)
        if self._requests and self._requests[0].arrival < request.arrival:
            self._requests[0].overtaken += 1
        request.overtaken = 0

    def put_first(self, request: Request) -> None:
        """It waits for the row budget only: the next step tries it first."""
        self._first = request

    def order(self, view: QueueView) -> list[Request]:
        """All waiting requests in the order in which admission tries them."""
        order = in_order(self._policy, self._requests, view)
        first = self._first
        if first is None and self._requests and self._requests[0].overtaken >= PATIENCE:
            first = self._requests[0]
        if first is not None and order[0] is not first:
            order.remove(first)
            order.insert(0, first)
        return order
