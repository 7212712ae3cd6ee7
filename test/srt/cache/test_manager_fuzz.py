"""CacheManager under a small scheduler with one step in flight and a memory whose pages are read
back: every row reads what it should, nothing is lost, exact means exact."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from treadle.srt.cache.replay import ReplayShape

P = 4
NAMESPACES = ((), (("lora", "a"),))
SHAPES = (ReplayShape("bounded", 1, 1), ReplayShape("exact", 3, 1), ReplayShape("off", 0, 1))


class Job:
    def __init__(self, ns, tokens, shape):
        self.ns, self.tokens, self.shape = ns, tokens, shape
        self.prompt_len = len(tokens)
        self.was_admitted = False
        self.lease = None
        self.computed = self.planned = 0
        self.replay_is_exact = True


class Machine:
    """`memory[page][offset]` is (ns, ids up to the position, truly exact)."""

    def __init__(self, manager, seed):
        self.manager, self.random = manager, random.Random(seed)
        self.memory: dict[int, list[Any]] = {
            page: [None] * P for page in range(1, manager.facts.num_pages)
        }
        self.waiting, self.running = [], []
        self.flight = None  # (step, [(job, lease, start, end, page table)])
        self.step = self.done = self.preempted = self.hits = 0

    def add(self):
        length = self.random.randint(1, 40)
        kind, cut = self.random.randint(0, 2), self.random.randint(0, 40)
        ids = [kind * 100 + i + (1000 if i >= cut else 0) for i in range(length)]
        shape = self.random.choice(SHAPES)
        self.waiting.append(Job(self.random.choice(NAMESPACES), array("i", ids), shape))

    def admit(self):
        job = self.waiting[0]
        n = len(job.tokens)
        resumed = job.prompt_len if job.was_admitted else None
        hint = self.manager.probe(job.ns, job.tokens, n - 1, job.shape)
        want = -(-(n + 4) // P) + len(self.running)
        args = (job.ns, job.tokens, n - 1, job.shape, want)
        got = self.manager.admit(*args, resumed_prompt_len=resumed)
        if got is None:
            return
        assert got.hit == hint
        assert got.lease.slot not in [other.lease.slot for other in self.running]
        self.waiting.pop(0)
        self.hits += got.hit.length > 0
        job.lease, job.was_admitted = got.lease, True
        job.computed = job.planned = got.hit.length
        job.replay_is_exact = self.manager.rule.is_exact(job.shape, got.hit.length)
        self.running.append(job)
        self.verify(job)

    def launch(self):
        """Plan one step: every job may advance; a job that cannot grow is preempted."""
        rows = []
        for job in list(self.running):
            if job.planned >= len(job.tokens) or self.random.random() < 0.2:
                continue
            end = min(len(job.tokens), job.planned + self.random.randint(1, 9))
            end = end if end == len(job.tokens) else end // P * P
            if end <= job.planned:
                continue
            before = len(job.lease.pages)
            pages = self.manager.grow(job.lease, end)
            if pages is None:
                self.preempted += 1
                self.stop(job)
                self.waiting.append(job)
                continue
            assert job.lease.pages[before:] == pages
            rows.append((job, job.lease, job.planned, end, job.lease.pages[:]))
            job.planned = end
        self.step += 1
        return self.step, rows

    def turn(self):
        """Launch step N+1 while N runs, then commit N."""
        running, self.flight = self.flight, self.launch()
        if running is not None:
            self.commit(*running)

    def commit(self, step, rows):
        for job, lease, start, end, pages in rows:
            self.execute(job, lease, start, end, pages)
        self.manager.committed(step)
        for job, lease, _, end, _ in rows:
            if job.lease is lease:
                self.advance(job, end)

    def execute(self, job, lease, start, end, pages):
        """Write what the step wrote, as late as possible: a page reused too early is seen."""
        is_live = job.lease is lease
        owned = {p for node in self.manager.tree.nodes() for p in node.pages}
        others = {p for other in self.running if other is not job for p in other.lease.pages}
        for row in range(start, end):
            page = pages[row // P]
            assert page not in owned and page not in others  # T6, T31
            if is_live:
                exact = job.replay_is_exact and all(
                    self.memory[pages[i // P]][i % P][2] for i in range(row)
                )
                self.memory[page][row % P] = (job.ns, job.tokens[: row + 1], exact)
            else:
                self.memory[page][row % P] = None

    def advance(self, job, end):
        job.computed = end
        self.publish(job)
        if end < len(job.tokens):
            return
        if self.random.random() < 0.06 or len(job.tokens) > 60:
            self.done += 1
            self.stop(job)
        else:
            job.tokens.append(self.random.randint(0, 1))

    def publish(self, job, *, final=False):
        step = self.flight[0] if self.flight else None
        args = (job.lease, job.tokens, job.computed, step)
        before = job.lease.pages[:]
        for first, pages in self.manager.publish(*args, is_final=final):
            before[first : first + len(pages)] = pages
        assert before == job.lease.pages
        self.verify(job)

    def stop(self, job):
        """Finish, abort and preemption are one path: publish, then release."""
        self.publish(job, final=True)
        self.manager.release(job.lease, self.flight[0] if self.flight else None)
        self.running.remove(job)
        job.lease = None

    def abort(self):
        if self.running:
            self.stop(self.random.choice(self.running))

    def verify(self, job):
        for i in range(job.computed):
            ns, ids, exact = self.memory[job.lease.pages[i // P]][i % P]
            assert (ns, ids) == (job.ns, job.tokens[: i + 1])
            assert exact or job.shape.mode != "exact" or job.lease.approx

    def check(self):
        self.manager.check()
        for node in self.manager.tree.nodes():
            rows = [row for page in node.pages for row in self.memory[page]]
            assert node.approx or all(exact for _, _, exact in rows)  # B31
        pages = sum(v for k, v in self.manager.gauges().items() if k.startswith("pages"))
        assert pages == self.manager.facts.num_pages - 1  # T5


@pytest.mark.parametrize(("seed", "windows"), [(0, 0), (1, 2), (2, 2), (3, 1)])
def test_every_row_reads_its_own_prefix_and_no_page_is_lost(make_manager, seed, windows):
    """T2, T5, T6, T13-T16, T20, T24, T31, T36, B30-B33."""
    machine = Machine(make_manager(num_pages=30, num_slots=6, windows=windows), seed)
    for _ in range(1500):
        roll = machine.random.random()
        if roll < 0.2:
            machine.add()
        elif roll < 0.4 and machine.waiting:
            machine.admit()
        elif roll < 0.42:
            machine.abort()
        elif roll < 0.43 and machine.manager.flush():
            assert not machine.running
        else:
            machine.turn()
        machine.check()
    assert machine.done > 50 and machine.preempted > 2 and machine.hits > 20
    for job in list(machine.running):
        machine.stop(job)
    machine.manager.committed(machine.step)
    machine.check()
    assert machine.manager.flush()
    assert machine.manager.gauges()["pages{state=free}"] == 29
    assert machine.manager.gauges()["window_slots{state=free}"] == 5
