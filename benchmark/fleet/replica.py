"""A replica without a device: the real prefix cache under steps whose length is computed.

    waiting --admit--> prefilling --last row--> decoding --last token--> done
              hit, pages, slot      first token   publish prompt           publish, release

A step runs rows of prompts up to the chunk, oldest request first, and one token of every decoding
request; steps without a prompt's rows are taken together until a request ends or one arrives. All
pages of a request, its whole output's too, are taken when it is admitted: nothing is ever
preempted. Lengths are tokens of the trace; `per_token` is how many real ones each stands for.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections import deque
from dataclasses import dataclass

from treadle.srt.cache.lease import Lease, Origin
from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule
from treadle.srt.cache.warm import Window

from .costs import Costs


@dataclass(frozen=True, slots=True)
class Shape:
    """`chunk` in tokens of the trace. `per_token`: real tokens for one of them."""

    facts: CacheFacts
    rule: ReplayRule
    chunk: int
    per_token: float
    costs: Costs


@dataclass(slots=True, eq=False)
class Job:
    """One request at one replica. `ids`: of prompt and output. `rows`: still to run before its
    first token. `first_at`: seconds; negative before the first token. `client` and `turn` are the
    simulation's.
    """

    ids: array[int]
    prompt: int
    client: int
    turn: int
    sent_at: float
    lease: Lease | None = None
    rows: int = 0
    hit: int = 0
    replayed: int = 0
    first_at: float = -1.0

    @property
    def output(self) -> int:
        return len(self.ids) - self.prompt


class Replica:
    """Driven from outside: `ends_at` says when `end_step` is due, and changes with each call."""

    def __init__(self, shape: Shape) -> None:
        self.cache = CacheManager(shape.facts, shape.rule)
        self.is_dead = False
        self.ends_at = math.inf  # of the step that runs
        self.total_rows = 0
        self._shape = shape
        self._waiting: deque[Job] = deque()
        self._prefilling: deque[Job] = deque()
        self._decoding: list[tuple[float, int, Job]] = []
        self._step: list[tuple[Job, int]] = []
        self._tokens = 0.0  # that a request would have decoded since the begin
        self._began = 0.0
        self._token_s = 0.0  # of the tokens of the step that runs
        self._number = 0

    @property
    def num_requests(self) -> int:
        return len(self._waiting) + len(self._prefilling) + len(self._decoding)

    @property
    def num_running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def uncached_tokens(self) -> float:
        """Real prompt tokens that are still to be run, as `/v1/loads` tells them."""
        waiting = sum(job.prompt for job in self._waiting)
        return (waiting + sum(job.rows for job in self._prefilling)) * self._shape.per_token

    def jobs(self) -> list[Job]:
        return [*self._waiting, *self._prefilling, *(job for _, _, job in self._decoding)]

    def arrive(self, job: Job, now: float) -> bool:
        """Whether it can ever be served: its pages must fit the pool."""
        size = self._shape.facts.page_size
        if -(-len(job.ids) // size) >= self._shape.facts.num_pages:
            return False
        self._waiting.append(job)
        if math.isinf(self.ends_at):
            self._begin(now)
        elif not self._step:  # tokens only: the step that comes next may take it in
            self._cut_short(now)
        return True

    def end_step(self) -> tuple[list[Job], list[Job]]:
        """At `ends_at`: (requests that had their first token, requests that ended)."""
        now = self.ends_at
        first: list[Job] = []
        if self._step:
            self._tokens += 1.0
            for job, rows in self._step:
                job.rows -= rows
                if not job.rows:
                    self._prefilling.remove(job)
                    self._answer_first(job, now)
                    first.append(job)
        else:
            self._tokens += round((now - self._began) / self._token_s)
        done = []
        while self._decoding and self._decoding[0][0] <= self._tokens + 1e-6:
            job = heapq.heappop(self._decoding)[2]
            self._release(job)
            done.append(job)
        self._begin(now)
        return first, done

    def _begin(self, now: float) -> None:
        """The next step, or none."""
        while self._waiting and self._admit(self._waiting[0]):
            self._prefilling.append(self._waiting.popleft())
        self._step = self._take_rows()
        self._began = now
        rows = sum(count for _, count in self._step)
        self.total_rows += rows
        self._token_s = self._shape.costs.step_s(rows * self._shape.per_token, len(self._decoding))
        if self._step:
            self.ends_at = now + self._token_s
        elif self._decoding:
            left = max(1, math.ceil(self._decoding[0][0] - self._tokens - 1e-6))
            self.ends_at = now + left * self._token_s
        else:
            self.ends_at = math.inf

    def _cut_short(self, now: float) -> None:
        """The tokens that run end with the one that is under way."""
        count = max(1, math.ceil((now - self._began) / self._token_s - 1e-9))
        self.ends_at = min(self.ends_at, self._began + count * self._token_s)

    def _take_rows(self) -> list[tuple[Job, int]]:
        left = max(1, self._shape.chunk - round(len(self._decoding) / self._shape.per_token))
        taken = []
        for job in self._prefilling:
            count = min(left, job.rows)
            if not count:
                break
            taken.append((job, count))
            left -= count
        return taken

    def _admit(self, job: Job) -> bool:
        shape = self._shape
        size = shape.facts.page_size
        prompt = job.ids[: job.prompt]
        reserve = -(-len(job.ids) // size)
        origin = Origin(session=str(job.client))
        got = self.cache.admit((), prompt, job.prompt - 1, shape.rule.default, reserve, origin)
        if got is None:
            return False
        if self.cache.grow(got.lease, len(job.ids)) is None:
            raise RuntimeError("pages that were reserved are not there")
        job.lease, job.hit, job.replayed = got.lease, got.hit.length, got.hit.replayed
        job.rows = job.prompt - got.hit.start
        return True

    def _answer_first(self, job: Job, now: float) -> None:
        job.first_at = now
        assert job.lease is not None
        self.cache.publish(job.lease, job.ids, job.prompt, None)
        self._number += 1
        ends = self._tokens + job.output * self._shape.per_token - 1.0
        heapq.heappush(self._decoding, (ends, self._number, job))

    def _release(self, job: Job) -> None:
        """The last token is sampled and never run, as in a server: it has no page of its own."""
        lease = job.lease
        assert lease is not None
        known = len(job.ids) - 1
        self.cache.publish(lease, job.ids, known, None, is_final=True)
        window = None
        if self.cache.keeps_windows(lease.shape):
            trims = lease.shape.trims  # upper layers have the prompt's last window only (B17)
            start = max(job.hit, job.prompt - 1) if trims else job.hit
            ids, approx = job.ids[:known].tobytes(), max(lease.approx, int(trims))
            window = Window((), ids, start, known, approx, str(job.client))
        self.cache.release(lease, None, window)
        job.lease = None
