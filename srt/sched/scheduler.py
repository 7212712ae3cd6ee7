"""Scheduler: which rows run in the next step, and what a finished step means for each request.

    add, abort -> waiting --plan: admit--> running --commit: finish--> a terminal RequestOutput
          held -----^---------- plan: preempt ---------'

There are no phases: a step advances each running request from `computed` towards `known`. The
scheduler plans at most one step ahead of the last commit; what is unknown then is only which ids
were sampled, and whether one of them ended its request. Such a request has one row too many in the
step ahead: it is computed and dropped (rule T33).

Invariants: one terminal output per request (T34); `_finish` is the only place that frees one for
good (T32), `_preempt` the only one that frees and requeues; what is freed while a step is in flight
is reused after its commit (T31); pages change owner only in `cache`. Not thread-safe, reads no
clock: `now` is in seconds and only differences count.
"""

from __future__ import annotations

from collections import deque
from random import Random

from ..cache.manager import CacheManager
from ..config import CacheSection, SchedSection
from ..errors import BadRequest, InvariantBroken, Overloaded, TreadleError
from ..grammar.store import GrammarStore
from ..messages import (
    AbortRequest,
    Finish,
    GenerateRequest,
    ReleaseSessions,
    RequestId,
    RequestOutput,
    StepPlan,
    StepResult,
    TokenLogprob,
    TokenOutput,
    Usage,
)
from ..snapshot import RequestView, SessionView
from .admission import Admitter
from .answer import Answers
from .arrival import Arrivals
from .constrained import Constrained, is_asking
from .counters import Counters
from .deadlines import Deadlines
from .estimate import NewTokenEstimate
from .finish import by_intent, out_of_pages, queue_full
from .limits import check_settings
from .plan import StepBuilder, StepRecord
from .preempt import choose_victim, spare
from .request import Request, RequestState
from .request_views import request_views
from .running import RunningSet
from .scoring import answered_scores
from .session_log import SessionLog
from .spans import add_rows
from .waiting import WaitingQueue


class Scheduler:
    def __init__(
        self,
        sched: SchedSection,
        cache: CacheSection,
        manager: CacheManager,
        context_len: int,
        grammars: GrammarStore | None = None,
    ) -> None:
        """Sections as `resolve` settles them. `context_len` in tokens, prompt and output. Without
        `grammars` a request that has one is refused.

        Raises: ConfigError for settings with which a request could never be run.
        """
        check_settings(sched, manager)
        self._settings = sched
        self._cache = manager
        self._page_size = manager.facts.page_size
        self._checks_invariants = cache.check_invariants
        self._requests: dict[RequestId, Request] = {}  # all that are not finished
        self._running = RunningSet(manager)
        self._constrained = Constrained(grammars)
        self._waiting = WaitingQueue(sched.policy)
        self._counters = Counters()
        self._estimate = NewTokenEstimate(sched.conservativeness)
        order_rng = Random(sched.seed)
        self._admitter = Admitter(manager, self._waiting, self._estimate, self._counters, order_rng)
        self._answers = Answers(self._running, self._constrained, self._counters, self._finish)
        self._deadlines = Deadlines()
        self._sessions = SessionLog()
        self._records: deque[StepRecord] = deque()  # planned, not yet committed
        self._events: list[RequestOutput] = []
        self._arrivals = Arrivals(sched, manager, context_len)
        self._next_step = 0
        self._committed_at = 0.0

    @property
    def in_flight(self) -> int:
        """Steps planned and not yet committed."""
        return len(self._records)

    @property
    def can_plan(self) -> bool:
        return len(self._records) < (2 if self._settings.overlap else 1)

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._requests)

    def step_age_s(self, now: float) -> float:
        """For how long the workers have had the oldest step; 0 when they have none."""
        if not self._records:
            return 0.0
        return now - max(self._records[0].planned_at, self._committed_at)

    def add(self, message: GenerateRequest, now: float) -> None:
        """Queue a request. A refusal is a terminal event with message and HTTP status."""
        try:
            request = self._accept(message, now)
        except TreadleError as error:
            end = Finish("abort", None, error.message, error.status, was_admitted=False)
            self._counters.finished(end)
            usage = Usage(len(message.prompt_ids), 0, 0, 0)
            self._events.append(RequestOutput(message.rid, (), usage, end))
            return
        self._requests[request.rid] = request
        self._deadlines.add(request, message)
        self._sessions.arrived(request, now)
        if request.state is RequestState.HELD:
            self._constrained.hold(request)
            self._counters.constrained()
        else:
            self._waiting.push(request)

    def abort(self, message: AbortRequest, now: float) -> None:
        """End the request with exactly this rid (rule T35); one that is unknown has ended before.

        A request with rows in flight is answered by the commit of the next of them, all others by
        an event (rule T34).
        """
        request = self._requests.get(message.rid)
        if request is None or request.intent is not None:
            return
        if message.reason != "stop":
            self._counters.aborted(message.reason, _phase(request))
        self._end(request, by_intent(message.reason), now)

    def expire(self, now: float) -> float | None:
        """Ends the requests whose time is over. Returns when to call it again at the latest."""
        for request, end in self._deadlines.due(now, self._requests):
            if request.intent is None:
                self._counters.aborted("timeout", _phase(request))
                self._end(request, end, now)
        return self._deadlines.next_at

    def _end(self, request: Request, end: Finish, now: float) -> None:
        if self._records and request.last_step >= self._records[0].step:
            request.intent = end
            request.known = request.next  # nothing more is planned for it
            return
        if not request.was_admitted:
            request.queue_s = now - request.arrived
        self._events.append(self._finish(request, end))

    def abort_all(self, reason: str, now: float) -> None:
        for rid in list(self._requests):
            self.abort(AbortRequest(rid, reason), now)

    def release_sessions(self, message: ReleaseSessions) -> None:
        """A hint (D18): what is kept for them goes before what is kept for others."""
        self._cache.release_sessions(frozenset(message.sessions), message.owner)

    def take_events(self) -> tuple[RequestOutput, ...]:
        """Terminal outputs since the last call that no commit has returned."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def flush(self) -> tuple[bool, str]:
        """Empty the prefix cache, if nothing runs and nothing waits (rule T25)."""
        if self._requests or not self._cache.flush():
            running, waiting = len(self._running), len(self._requests) - len(self._running)
            return False, f"not flushed: {running} requests run and {waiting} wait"
        return True, "the prefix cache is empty"

    def stats(self) -> tuple[dict[str, float], dict[str, float]]:
        """(counters, gauges), read from state."""
        parked = sum(request.known - request.next > 1 for request in self._running)
        gauges = {
            "running": float(len(self._running)),
            "waiting": float(len(self._waiting)),
            "held": float(self._constrained.num_held),
            "uncached_prompt_tokens": float(sum(r.uncomputed for r in self._requests.values())),
            "preempted": float(sum(request.was_admitted for request in self._waiting)),
            "parked_chunks": float(parked),
            "in_flight_steps": float(len(self._records)),
            "new_token_ratio": self._estimate.ratio,
        }
        counters = self._counters.snapshot() | self._cache.counters()
        return counters, gauges | self._cache.gauges()

    def requests(self, now: float, limit: int) -> tuple[RequestView, ...]:
        """At most `limit` that run and as many that wait."""
        return request_views(self._running, self._waiting, now, limit)

    def sessions(self, now: float, limit: int) -> tuple[SessionView, ...]:
        """The `limit` that spoke last. O(requests)."""
        windows = self._cache.windows.warm.windows()
        return self._sessions.views(self._requests.values(), windows, now, limit)

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or None when nothing can run before the next commit or arrival."""
        if not self.can_plan:
            return None
        self._take_rows()
        if not self._give_way():
            return None
        is_calm = True
        rows = self._running.rows()
        while rows.short is not None:
            if self._records:
                # A commit may free pages, and until then nobody can be preempted: the last tokens
                # are on the device. Planning goes on from an answered state.
                return None
            is_calm = False
            self._make_room(rows.short)
            rows = self._running.rows()
        record = StepRecord(self._next_step, now)
        builder = StepBuilder(record, self._settings.chunk_tokens)
        add_rows(builder, rows, self._cache.rule, self._page_size)
        if is_calm:
            self._estimate.decay()
        if is_calm or not self._running:
            self._admitter.admit(builder, self._running, now)
        if not builder.num_rows:
            if self._waiting and not self._records and not self._constrained.num_asked:
                raise InvariantBroken(f"{len(self._waiting)} requests wait for an idle pool")
            return None
        self._next_step += 1
        self._records.append(record)
        return builder.build(self._running.take_updates())

    def commit(self, result: StepResult, now: float) -> TokenOutput:
        """Apply the answer of the oldest step in flight. Raises: InvariantBroken for another."""
        if not self._records or self._records[0].step != result.step:
            raise InvariantBroken(f"step {result.step} is answered out of order")
        record = self._records.popleft()
        self._committed_at = now
        self._cache.committed(record.step)
        prompts = answered_scores(record, result)
        outputs = self._answers.apply(record, result, self._newest_step)
        if self._checks_invariants:
            self._cache.check()
        return TokenOutput(tuple(outputs), prompts)

    def _accept(self, message: GenerateRequest, now: float) -> Request:
        self._arrivals.check(message)
        if message.rid in self._requests:
            raise BadRequest(f"rid {message.rid!r} is in use", param="rid")
        limit = self._settings.max_queued
        waiting = len(self._waiting) + self._constrained.num_held
        queued = waiting - self._cache.num_admittable  # the others start at once
        if 0 <= limit <= queued and not self._displace(self._arrivals.priority(message)):
            raise Overloaded(queue_full(queued, limit).message)
        parent = None if message.fork_of is None else self._requests.get(message.fork_of)
        return self._arrivals.make(message, now, self._constrained.start(message), parent)

    def _take_rows(self) -> None:
        """Rows of grammars that have come: who was held for one waits, who runs goes on."""
        for request, end in self._constrained.collect():
            if end is not None:
                output = self._finish(request, end)
                self._counters.sampled(len(output.token_ids))
                self._events.append(output)
            elif request.state is RequestState.HELD:
                request.move(RequestState.WAITING)
                self._waiting.push(request)

    def _displace(self, priority: int) -> bool:
        """Ends the least of the waiting requests, if it is of less priority and never ran."""
        least = self._waiting.tail
        if least is None or least.priority >= priority or least.was_admitted:
            return False
        end = queue_full(len(self._waiting), self._settings.max_queued)
        self._events.append(self._finish(least, end))
        return True

    def _give_way(self) -> bool:
        """Preempt a request that a waiting one outranks by enough, if that lacks slot or pages.
        False: to be done when no step is in flight."""
        if not self._settings.priorities:
            return True
        victim = self._admitter.outranked(self._running, self._settings.preempt_gap)
        if victim is None:
            return True
        if self._records:
            return False
        self._preempt(victim)
        return True

    def _make_room(self, short: Request) -> None:
        """Preempt a request, or end `short` when there is no other (rule T45)."""
        victim = choose_victim(self._running.requests)
        if victim is None:
            error = out_of_pages(self._cache.facts.num_pages - 1)
            self._events.append(self._finish(short, error))
        else:
            self._preempt(victim)
            self._estimate.preempted(self._running)

    def _preempt(self, request: Request) -> None:
        """Back to the queue with all its tokens; the tree keeps its full pages (rule T43)."""
        self._running.leave(request, None)
        request.ever_computed = max(request.ever_computed, request.computed)
        request.spared_until = spare(request)
        request.known = request.len
        request.next = request.computed = request.hit = 0
        if is_asking(request):
            request.move(RequestState.HELD)
        else:
            request.move(RequestState.WAITING)
            self._waiting.push(request)
        self._counters.preempted()

    @property
    def _newest_step(self) -> int | None:
        """Newest step in flight: what is freed now may be reused after its commit (T31)."""
        return self._records[-1].step if self._records else None

    def _finish(
        self,
        request: Request,
        end: Finish,
        token_ids: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprob | None, ...] = (),
    ) -> RequestOutput:
        """The terminal output. The one place that frees a request for good (rule T32)."""
        if request.state is RequestState.RUNNING:
            self._running.leave(request, self._newest_step)
        elif request.state is RequestState.WAITING:
            self._waiting.remove(request)
        request.move(RequestState.FINISHED)
        del self._requests[request.rid]
        self._counters.finished(end)
        self._sessions.ended(request)
        usage = request.usage()
        token_ids = (*request.take_unsent(), *token_ids)
        return RequestOutput(request.rid, token_ids, usage, end, logprobs, request.queue_s)


def _phase(request: Request) -> str:
    """Label of the aborts counter."""
    if request.state is RequestState.HELD and not request.was_admitted:
        return "grammar"
    if request.state is not RequestState.RUNNING:
        return "preempted" if request.was_admitted else "queued"
    return "prompt" if request.known - request.next > 1 else "decode"
