"""Admission: waiting requests get a slot, pages for all known tokens, and their first rows.

A request is probed, then admitted: what cannot be admitted has changed nothing (rules T8, B30). The
queue keeps no pages and no lengths, every attempt looks anew (T9). Reserved per admission (T24):

    pages of known + expected tokens, less the hit
    + what each running request is expected to need beyond the pages it holds, at least one page

Pages of known tokens are taken here, so a prompt between two chunks lacks only row budget (T38).
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator
from random import Random
from typing import NamedTuple

from ..arrays import ids
from ..cache.lease import Admission, Origin, PrefixHit
from ..cache.manager import CacheManager
from ..cache.node import Namespace
from ..cache.replay import ReplayShape
from ..errors import InvariantBroken
from ..messages import SlotId, SlotReset
from .counters import Counters
from .estimate import NewTokenEstimate
from .plan import StepBuilder, span_end, stop_of
from .policy import QueueView
from .preempt import choose_outranked
from .request import Request, RequestState
from .running import RunningSet
from .waiting import WaitingQueue

SHARED_TOKENS = 32  # with more in common, and none of it cached yet, one request goes ahead (T41)

_Prefix = tuple[object, bytes]


class _Wish(NamedTuple):
    """The arguments of `CacheManager.admit`."""

    ns: Namespace
    tokens: array[int]
    limit: int
    shape: ReplayShape
    reserve_pages: int
    origin: Origin


class Admitter:
    def __init__(
        self,
        cache: CacheManager,
        queue: WaitingQueue,
        estimate: NewTokenEstimate,
        counters: Counters,
        rng: Random,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._estimate = estimate
        self._counters = counters
        self._view = QueueView(lambda request: self._probe(request).length, rng)
        self.lacking: Request | None = None  # in the last attempt, the first to lack slot or pages

    def admit(self, builder: StepBuilder, running: RunningSet, now: float) -> None:
        """Admit in order until rows, slots or pages end; the admitted join `running`.

        Alone, a request fits: prompts that never do are refused at arrival, and one that was
        preempted had left pages to another (T45)."""
        self.lacking = self._queue.head
        if not self._queue or self._cache.num_admittable < 1:
            return
        if running and self._cache.available_pages <= self._headroom(running):
            return  # each needs a page at least: no use in probing the queue at every step
        self.lacking = None
        leaders = set(_leading_prefixes(running))
        for request in self._queue.order(self._view):
            if builder.budget <= 0:
                return
            hit = self._probe(request)
            if self._is_behind(request, hit, leaders):
                continue
            end = self._first_end(request, hit, builder)
            if end is None:
                self._queue.put_first(request)
                return
            admission = self._cache.admit(*self._wants(request, running))
            if admission is None:
                self.lacking = request
                return
            self._enter(request, admission, now)
            request.trimmed = request.len if request.shape.trims else 0
            request.told = request.len  # by the slot's reset
            running.enter(request, admission.lease)
            reset = _reset(request, admission.hit, self._cache.rule.window)
            builder.enter(reset, admission.lease.pages[:])
            builder.add_span(request, end)
            leaders.update(_leading_prefixes([request]))

    def outranked(self, running: RunningSet, gap: int) -> Request | None:
        """Who is to make way for the waiting request that lacks slot or pages. Not one that has
        outgrown the pool: it could never come back, and ends when it needs its next page (T45)."""
        waiting = self.lacking
        if waiting is None or waiting.state is not RequestState.WAITING:
            return None
        if self._is_following(waiting, running):
            return None
        if self._cache.fits(*self._wants(waiting, running)):
            return None  # a commit has freed what it lacked
        room = (self._cache.facts.num_pages - 1) * self._cache.facts.page_size
        could_resume = [request for request in running if request.len <= room]
        return choose_outranked(could_resume, waiting.priority, gap)

    def _is_following(self, request: Request, running: RunningSet) -> bool:
        """Whether a running request is computing its prefix, for which it would wait (T41)."""
        if request.parent is not None:
            return request.parent.is_prefilling
        return _prefix(request) in set(_leading_prefixes(running))

    def _is_behind(
        self, request: Request, hit: PrefixHit, leaders: Container[_Prefix | None]
    ) -> bool:
        """Whether the prompt, or how it begins, is being computed by another (T41). A fork waits
        for all of it: only then is the window of its end there to be copied."""
        parent = request.parent
        if parent is None:
            is_alike = hit.length < SHARED_TOKENS <= request.hit_limit
            return is_alike and _prefix(request) in leaders
        return parent.is_prefilling and self._cache.shares_prefixes(request.shape)

    def _probe(self, request: Request) -> PrefixHit:
        return self._cache.probe(
            request.namespace, request.tokens, request.hit_limit, request.shape, _origin(request)
        )

    def _first_end(self, request: Request, hit: PrefixHit, builder: StepBuilder) -> int | None:
        """End of the request's rows in this step, or None when it has to wait for the next.

        A bounded replay waits for a step that holds it whole (B15). When not even a step without
        other prompts does, because decode rows leave too little, waiting would not end: it is cut
        like an exact one (B16), which computes the same rows with the same floors.
        """
        return span_end(
            hit.start,
            stop_of(request, hit.length),
            hit.length,
            builder.budget,
            self._cache.facts.page_size,
            may_cut_replay=request.shape.mode != "bounded" or not builder.has_prompt_rows,
        )

    def _wants(self, request: Request, running: RunningSet) -> _Wish:
        size = self._cache.facts.page_size
        tokens = request.len
        reserve = -(-tokens // size)  # alone, it may use the whole pool
        if running:
            expected = tokens + self._estimate.tokens(request)
            reserve = -(-expected // size) + self._headroom(running)
        return _Wish(
            request.namespace,
            request.tokens,
            request.hit_limit,
            request.shape,
            reserve,
            _origin(request),
        )

    def _headroom(self, running: RunningSet) -> int:
        """Pages that running requests are expected to take beyond those they hold."""
        size = self._cache.facts.page_size
        total = 0
        for request in running:
            more = self._estimate.tokens(request)
            if more:
                total += max(1, -(-(request.known + more - request.capacity) // size))
        return total

    def _enter(self, request: Request, admission: Admission, now: float) -> None:
        hit = admission.hit
        if self._cache.grow(admission.lease, request.len) is None:
            raise InvariantBroken(f"request {request.rid}: reserved pages are not there")
        self._queue.admitted(request)
        request.move(RequestState.RUNNING)
        request.next, request.hit, request.computed = hit.start, hit.length, hit.length
        request.approx = max(request.approx, admission.lease.approx)
        if not request.was_admitted:
            request.was_admitted = True
            request.cached, request.replayed = hit.length, hit.replayed
            request.queue_s = now - request.arrived
            self._counters.admitted(request, hit)


def _origin(request: Request) -> Origin:
    resumed = request.prompt_len if request.was_admitted else None
    parent = request.parent
    if parent is None:
        return Origin(resumed, request.session)
    window = parent.window()
    held = None if window is None else (SlotId(parent.slot), window)
    return Origin(resumed, request.session, is_fork=True, parent=held)


def _reset(request: Request, hit: PrefixHit, window: int) -> SlotReset:
    source = hit.source
    return SlotReset(
        slot=request.slot,
        floor=hit.start if source is None else max(0, hit.length - window + 1),
        source=0 if source is None else source.slot,
        hit=request.hit,
        slope=request.shape.slope,
        depth=request.shape.depth,
        prompt_len=request.prompt_len,
        num_output=request.num_output,
        sampling=request.sampling,
        top_logprobs=request.top_logprobs,
        history=request.tokens[:] if request.sampling.has_penalties else ids(),
        logprob_ids=request.logprob_ids,
        trim_end=request.trimmed,
        lookback=request.lookback(),
    )


def _prefix(request: Request) -> _Prefix | None:
    """What two requests have in common when they share more than `SHARED_TOKENS` tokens."""
    if request.len <= SHARED_TOKENS:
        return None
    return request.namespace, request.tokens[: SHARED_TOKENS + 1].tobytes()


def _leading_prefixes(requests: Iterable[Request]) -> Iterator[_Prefix]:
    """Prefixes that are being computed for the first time and not answered yet."""
    for request in requests:
        if request.computed < SHARED_TOKENS:
            prefix = _prefix(request)
            if prefix is not None:
                yield prefix
