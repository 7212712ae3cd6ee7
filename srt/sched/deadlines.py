"""When requests that still live must end: the time limits of queueing and of the whole request.

A request is told by rid and arrival, so an ended one costs a few bytes until its time comes, and a
later request of the same rid is not mistaken for it. Seconds of the caller's clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..messages import Finish, GenerateRequest, RequestId
from .finish import too_late
from .request import Request


class _Deadline(NamedTuple):
    at: float
    arrival: int
    rid: RequestId
    limit_s: float
    is_of_queue: bool


class Deadlines:
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[_Deadline] = []

    def add(self, request: Request, message: GenerateRequest) -> None:
        """The limits that `message` sets, counted from the request's arrival."""
        limits = ((message.queue_timeout_s, True), (message.timeout_s, False))
        for limit_s, is_of_queue in limits:
            if limit_s is not None:
                at = request.arrived + limit_s
                deadline = _Deadline(at, request.arrival, request.rid, limit_s, is_of_queue)
                heapq.heappush(self._heap, deadline)

    @property
    def next_at(self) -> float | None:
        return self._heap[0].at if self._heap else None

    def due(
        self, now: float, requests: Mapping[RequestId, Request]
    ) -> Iterator[tuple[Request, Finish]]:
        """Each of `requests` that is too late, with how it ends. Forgets what is due."""
        while self._heap and self._heap[0].at <= now:
            deadline = heapq.heappop(self._heap)
            request = requests.get(deadline.rid)
            if request is None or request.arrival != deadline.arrival:
                continue
            if not (deadline.is_of_queue and request.was_admitted):
                yield request, too_late(deadline.limit_s, was_admitted=request.was_admitted)
