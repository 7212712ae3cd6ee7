"""The processes of one replica as its launcher sees them: start, pass on, watch, stop.

    worker(s) --Ready(capacities)--> launcher --> scheduler --Ready--> launcher --> tokenizer
    tokenizer --Ready--> launcher: the replica serves

All are started at once: the HTTP server answers 503 while weights load. It ends in one of two ways.
Stop (a signal): tokenizer, scheduler and workers in this order, each after the one before has gone.
Failure (a child died or said so): the tokenizer is told first, so that it can answer its clients,
the others are killed, and `WorkerLost` with the reason is raised.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass
from typing import NoReturn

import zmq

from ..errors import WorkerLost
from ..lifecycle import Failed, Progress, Ready, Shutdown
from ..log import event
from ..messages import Message
from ..net.ipc import Hub, Outbox
from .boot import Boot
from .children import Child, Signals, start_child, wait_for
from .progress import LoadingProgress

log = logging.getLogger(__name__)

STOP_ORDER = (  # seconds until a process that was asked to stop is killed
    ("tokenizer", 5.0),  # besides the time for draining
    ("scheduler", 5.0),
    ("worker", 5.0),
)
LAST_ANSWER_S = 5.0  # for the tokenizer to answer its clients after a failure
LAST_WORD_S = 2.0  # for a dead child's `Failed`, which may be behind the news of its death


@dataclass(frozen=True, slots=True)
class Programs:
    """The module behind each role."""

    tokenizer: str = "treadle.srt.procs.tokenizer"
    scheduler: str = "treadle.srt.procs.scheduler"
    worker: str = "treadle.srt.procs.worker"


class Replica:
    def __init__(self, hub: Hub, signals: Signals, boot: Boot) -> None:
        """`boot` is the record that every child gets with its own role and rank."""
        self._hub = hub
        self._signals = signals
        self._boot = boot
        self._inbox = hub.inbox(boot.endpoints.launcher)
        self._poller = zmq.Poller()
        self._poller.register(self._inbox.socket, zmq.POLLIN)
        self._poller.register(signals.fileno(), zmq.POLLIN)
        self._children: dict[str, Child] = {}  # by name, in the order of `STOP_ORDER`
        self._outboxes: dict[str, Outbox] = {}
        self._capacities: dict[int, Ready] = {}
        self._progress = LoadingProgress()
        self._started_at = time.monotonic()

    def start(self, programs: Programs) -> None:
        """The tokenizer first: a port in use is found before weights are read."""
        boot = self._boot
        self._start("tokenizer", 0, programs.tokenizer, boot.endpoints.tokenizer)
        self._start("scheduler", 0, programs.scheduler, boot.endpoints.scheduler)
        for rank, address in enumerate(boot.endpoints.workers):
            self._start("worker", rank, programs.worker, address)

    def run(self) -> None:
        """Until a stop signal, then stops in order. Raises WorkerLost."""
        while not self._signals.stop_requests:
            self._turn(None)
        self._stop()

    def kill(self) -> None:
        """Ends what still runs, at once."""
        self._progress.close()
        for child in self._children.values():
            child.kill()

    def _start(self, role: str, rank: int, module: str, address: str) -> None:
        child = start_child(dataclasses.replace(self._boot, role=role, rank=rank), module)
        self._children[child.name] = child
        self._outboxes[child.name] = self._hub.outbox(address)

    def _turn(self, timeout_s: float | None, leaving: frozenset[str] = frozenset()) -> None:
        """Waits for news and handles them. `leaving`: names of children that are allowed to end."""
        self._poller.poll(None if timeout_s is None else int(timeout_s * 1000) + 1)
        self._signals.clear()
        for message in self._inbox.drain():
            self._handle(message)
        for child in self._children.values():
            if child.name not in leaving and not child.is_running:
                self._fail(self._last_word(child) or child.describe_end())

    def _handle(self, message: Message) -> None:
        if isinstance(message, Failed):
            self._fail(message.message)
        elif isinstance(message, Progress):
            self._progress.update(message)
        elif isinstance(message, Ready):
            self._pass_on(message)

    def _pass_on(self, ready: Ready) -> None:
        if ready.role == "worker":
            self._capacities[ready.rank] = ready
            if len(self._capacities) == len(self._boot.endpoints.workers):
                self._progress.close()
                self._outboxes["scheduler"].send(self._common_capacity())
        elif ready.role == "scheduler":
            self._outboxes["tokenizer"].send(ready)
        else:
            seconds = time.monotonic() - self._started_at
            log.info(event("serving", {"start_s": seconds, "model": self._boot.config.model.path}))

    def _common_capacity(self) -> Ready:
        """What every rank has: the scheduler hands out the same page on all of them."""
        ranks = list(self._capacities.values())
        return dataclasses.replace(
            ranks[0],
            num_pages=min(r.num_pages for r in ranks),
            num_slots=min(r.num_slots for r in ranks),
            weight_bytes=sum(r.weight_bytes for r in ranks),
            kv_bytes=sum(r.kv_bytes for r in ranks),
        )

    def _last_word(self, child: Child) -> str:
        """The message of a `Failed` that arrives within `LAST_WORD_S`, or "": whom a signal ended,
        a crash of native code among them, had no time for one."""
        if child.process.returncode is not None and child.process.returncode < 0:
            return ""
        deadline = time.monotonic() + LAST_WORD_S
        while (left := deadline - time.monotonic()) > 0:
            message = self._inbox.recv(left)
            if isinstance(message, Failed):
                return message.message
        return ""

    def _fail(self, reason: str) -> NoReturn:
        self._progress.close()
        tokenizer = self._children["tokenizer"]
        self._outboxes["tokenizer"].send(Failed("launcher", 0, reason))
        for child in self._children.values():
            if child is not tokenizer:
                child.kill()
        wait_for([tokenizer], LAST_ANSWER_S)
        raise WorkerLost(reason)

    def _stop(self) -> None:
        """A second signal ends the requests that still run, a third the rest at once."""
        log.info(event("stopping", {}))
        self._progress.close()
        leaving: frozenset[str] = frozenset()
        for role, limit_s in STOP_ORDER:
            group = [c for c in self._children.values() if c.boot.role == role]
            leaving |= {child.name for child in group}
            for child in group:
                self._outboxes[child.name].send(Shutdown("the server is stopping"))
            if role == "tokenizer":
                self._drain(group[0], leaving)
            self._await_end(group, limit_s, leaving)
        log.info(event("stopped", {}))

    def _drain(self, tokenizer: Child, leaving: frozenset[str]) -> None:
        """Until it has ended, its time for running requests is over, or a second signal came."""
        deadline = time.monotonic() + self._boot.config.api.drain_s
        while tokenizer.is_running and self._signals.stop_requests < 2:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._turn(left, leaving)
        if tokenizer.is_running:
            log.info(event("stopping_now", {}))
            self._outboxes["tokenizer"].send(Shutdown("the server is stopping now"))

    def _await_end(self, group: list[Child], limit_s: float, leaving: frozenset[str]) -> None:
        deadline = time.monotonic() + limit_s
        while any(child.is_running for child in group):
            left = deadline - time.monotonic()
            if left <= 0 or self._signals.stop_requests > 2:
                break
            self._turn(left, leaving)
        for child in group:
            if child.is_running:
                log.warning(event("killed", {"process": child.name, "after_s": limit_s}))
                child.kill()
