"""The loop of the scheduler process: messages in, plans to the workers, results and tokens out.

    drain inbox -> add / abort / commit -> plan (at most one step ahead) -> terminal events

Owns the rhythm, not the decisions. It sleeps in the inbox whenever nothing can be planned: there is
no busy loop, neither idle nor while the workers compute. When the replica has been idle for a
moment the bookkeeping is counted; what does not add up is logged and counted, and both tree and
allocators start anew: no request is lost and no page stays leaked. Then, too, memory that the work
before has freed goes back to the system. A step that takes longer than the watchdog allows ends the
process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..cache.manager import CacheManager
from ..cache.outline import outline
from ..errors import InvariantBroken, WorkerLost
from ..lifecycle import Shutdown
from ..log import event
from ..messages import (
    AbortAll,
    AbortRequest,
    Done,
    Flush,
    GenerateRequest,
    Message,
    ReleaseSessions,
    Stats,
    StatsRequest,
    StepResult,
    TokenOutput,
)
from ..net.ipc import Inbox, Outbox, send_all
from ..profiling import Profile
from ..sched.scheduler import Scheduler
from ..snapshot import Snapshot, SnapshotRequest
from ..step_times import StepTimes
from .heap import return_freed_memory

log = logging.getLogger(__name__)

IDLE_CHECK_S = 1.0  # counting all pages takes milliseconds; not between the turns of a dialogue
# Bounds of a snapshot, which is made between two steps.
OUTLINE_NODES = 1000
REQUEST_VIEWS = 64  # that run, and as many that wait
SESSION_VIEWS = 64
STALL_S = 0.1  # until planning is tried again when requests wait and no step is in flight


@dataclass(frozen=True, slots=True)
class Bookkeeping:
    """The bookkeeping of one replica; made anew when its invariants are broken."""

    scheduler: Scheduler
    cache: CacheManager


@dataclass(frozen=True, slots=True)
class Ports:
    inbox: Inbox
    tokenizer: Outbox
    workers: tuple[Outbox, ...]


class StepLoop:
    def __init__(
        self, make: Callable[[], Bookkeeping], ports: Ports, watchdog_s: float, log_interval: int
    ) -> None:
        """`make` builds one with nothing in it; `log_interval` is in steps."""
        self._make = make
        self._books = make()
        self._ports = ports
        self._watchdog_s = watchdog_s
        self._status = StatusLine(log_interval)
        self._times = StepTimes()
        self._wake_at: float | None = None  # when the next time limit of a request is over
        self._is_checked = True
        self._is_stopping = False
        self._failed_checks = 0

    def run(self) -> None:
        """Until `Shutdown`. Raises WorkerLost when a step takes too long, InvariantBroken."""
        while not self._is_stopping:
            self.turn(time.monotonic())

    def turn(self, now: float) -> None:
        """Waits for messages unless there is something to plan, then does all there is to do."""
        first = self._ports.inbox.recv(self._patience(now))
        if first is None:
            self._nothing_came(time.monotonic())
        else:
            for message in (first, *self._ports.inbox.drain()):
                self._handle(message, time.monotonic())
        self._wake_at = self._books.scheduler.expire(time.monotonic())
        self._plan()
        self._send(TokenOutput(self._books.scheduler.take_events()))

    def _patience(self, now: float) -> float | None:
        """Seconds to wait in the inbox; None is for ever."""
        patience = self._patience_of_steps(now)
        if self._wake_at is None:
            return patience
        left = max(0.0, self._wake_at - now) + 0.001
        return left if patience is None else min(patience, left)

    def _patience_of_steps(self, now: float) -> float | None:
        scheduler = self._books.scheduler
        if scheduler.in_flight:
            return max(0.0, self._watchdog_s - scheduler.step_age_s(now)) + 0.001
        if scheduler.has_work:
            return STALL_S
        return None if self._is_checked else IDLE_CHECK_S

    def _nothing_came(self, now: float) -> None:
        scheduler = self._books.scheduler
        if scheduler.in_flight:
            if scheduler.step_age_s(now) > self._watchdog_s:
                limit = f"--watchdog-timeout {self._watchdog_s:g}"
                raise WorkerLost(f"a step has run for longer than {limit} seconds")
        elif not scheduler.has_work:
            self._check()

    def _handle(self, message: Message, now: float) -> None:
        scheduler = self._books.scheduler
        if isinstance(message, StepResult):
            output = scheduler.commit(message, now)
            self._send(output)
            self._status.stepped(message, output, now)
            sample_s = message.sample_ms / 1e3
            self._times.answered(message.step, now, message.run_ms / 1e3 - sample_s, sample_s)
            if self._status.is_due:
                self._status.write(*scheduler.stats(), now)
        elif isinstance(message, GenerateRequest):
            self._is_checked = False
            scheduler.add(message, now)
        elif isinstance(message, AbortRequest):
            scheduler.abort(message, now)
        else:
            self._control(message, now)

    def _control(self, message: Message, now: float) -> None:
        scheduler = self._books.scheduler
        if isinstance(message, AbortAll):
            scheduler.abort_all(message.reason, now)
        elif isinstance(message, ReleaseSessions):
            scheduler.release_sessions(message)
        elif isinstance(message, Flush):
            ok, text = scheduler.flush()
            log.info(event("flush_cache", {"ok": ok}))
            self._ports.tokenizer.send(Done(message.token, ok, text))
        elif isinstance(message, Profile):
            send_all(self._ports.workers, message)
        elif isinstance(message, Done):  # of worker 0
            self._ports.tokenizer.send(message)
        elif isinstance(message, StatsRequest):
            self._ports.tokenizer.send(self._stats(message.token))
        elif isinstance(message, SnapshotRequest):
            self._ports.tokenizer.send(self._snapshot(message.token, now))
        elif isinstance(message, Shutdown):
            self._is_stopping = True
        else:
            raise InvariantBroken(f"the scheduler cannot handle {type(message).__name__}")

    def _plan(self) -> None:
        scheduler = self._books.scheduler
        while scheduler.can_plan:
            began = time.monotonic()
            plan = scheduler.plan(began)
            if plan is None:
                return
            self._times.planned(plan.step, began, time.monotonic())
            send_all(self._ports.workers, plan)

    def _send(self, output: TokenOutput) -> None:
        if output.outputs or output.prompts:
            self._ports.tokenizer.send(output)

    def _stats(self, token: int) -> Stats:
        counters, gauges = self._books.scheduler.stats()
        counters = counters | self._status.counters() | self._times.counters()
        counters["cache_invariant_failures"] = float(self._failed_checks)
        return Stats(token, counters, gauges | {"gen_throughput": self._status.tokens_per_s})

    def _snapshot(self, token: int, now: float) -> Snapshot:
        scheduler, stats = self._books.scheduler, self._stats(token)
        return Snapshot(
            token,
            stats.counters,
            stats.gauges,
            scheduler.requests(now, REQUEST_VIEWS),
            scheduler.sessions(now, SESSION_VIEWS),
            outline(self._books.cache.tree, OUTLINE_NODES),
        )

    def _check(self) -> None:
        self._is_checked = True
        return_freed_memory()
        try:
            self._books.cache.check()
        except InvariantBroken as e:
            self._failed_checks += 1
            log.error(event("cache_invariant_broken", {"what": e.message, "action": "reset"}))
            self._books = self._make()


class StatusLine:
    """Totals over steps, and the line that operators read every `interval` steps."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0
        self._layer_rows: list[int] = []  # rows that entered each layer
        self._forward_s = 0.0
        self._tokens = 0
        self._since = time.monotonic()
        self.tokens_per_s = 0.0

    @property
    def is_due(self) -> bool:
        return self._steps % self._interval == 0

    def stepped(self, result: StepResult, output: TokenOutput, now: float) -> None:
        if self._tokens == 0:
            self._since = now - result.run_ms / 1e3
        self._steps += 1
        if not self._layer_rows:
            self._layer_rows = [0] * len(result.layer_rows)
        for layer, rows in enumerate(result.layer_rows):
            self._layer_rows[layer] += rows
        self._forward_s += result.run_ms / 1e3
        self._tokens += sum(len(x.token_ids) for x in output.outputs)

    def counters(self) -> dict[str, float]:
        rows = {f"layer_rows{{layer={i}}}": float(n) for i, n in enumerate(self._layer_rows)}
        return rows | {
            "steps": float(self._steps),
            "forward_seconds": self._forward_s,
        }

    def write(self, counters: dict[str, float], gauges: dict[str, float], now: float) -> None:
        self.tokens_per_s = self._tokens / max(now - self._since, 1e-6)
        self._tokens = 0
        asked = counters.get("prefix_query_tokens", 0.0)
        fields: dict[str, object] = {
            "step": self._steps,
            "running": int(gauges.get("running", 0)),
            "waiting": int(gauges.get("waiting", 0)),
            "free_pages": int(gauges.get("pages{state=free}", 0)),
            "evictable_pages": int(gauges.get("pages{state=evictable}", 0)),
            "gen_tokens_s": self.tokens_per_s,
            "hit_rate": counters.get("prefix_hit_tokens", 0.0) / asked if asked else 0.0,
        }
        log.info(event("status", fields))
