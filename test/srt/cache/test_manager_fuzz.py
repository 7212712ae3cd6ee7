"""CacheManager under a small scheduler with one step in flight, a memory whose pages are read back
and rings whose rows are: every row reads what it should, nothing is lost, exact means exact."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from treadle.srt.cache.lease import Origin
from treadle.srt.cache.replay import ReplayShape
from treadle.srt.cache.warm import Window

P, W = 4, 4
NAMESPACES = ((), (("lora", "a"),))
SHAPES = (ReplayShape("bounded", 1, 1), ReplayShape("exact", 3, 1), ReplayShape("off", 0, 1))


class Job:
    def __init__(self, ns, tokens, shape):
        self.ns, self.tokens, self.shape = ns, tokens, shape
        self.prompt_len = len(tokens)
        self.was_admitted = False
        self.lease = None
        self.computed = self.planned = self.hit = 0
        self.replay_is_exact = True


class Machine:
    """`memory[page][offset]` is (ns, ids up to the position, truly exact)."""

    def __init__(self, manager, seed):
        self.manager, self.random = manager, random.Random(seed)
        self.ended: list[Job] = []
        self.memory: dict[int, list[Any]] = {
            page: [None] * P for page in range(1, manager.facts.num_pages)
        }
        self.rings: list[list[Any]] = [
            [None] * manager.facts.ring_rows for _ in range(manager.facts.num_slots)
        ]
        self.waiting, self.running, self.resets = [], [], []
        self.flight = None  # (step, resets, [(job, lease, start, end, page table)])
        self.step = self.done = self.preempted = self.hits = self.kept = 0

    def add(self):
        length = self.random.randint(1, 40)
        kind, cut = self.random.randint(0, 2), self.random.randint(0, 40)
        ids = [kind * 100 + i + (1000 if i >= cut else 0) for i in range(length)]
        shape = self.random.choice(SHAPES)
        job = Job(self.random.choice(NAMESPACES), array("i", ids), shape)
        if self.ended and self.random.random() < 0.4:  # a next turn, at once
            before = self.random.choice(self.ended[-3:])
            tokens = before.tokens[:40] + array("i", ids[: self.random.randint(1, 6)])
            self.waiting.insert(0, Job(before.ns, tokens, shape))
        else:
            self.waiting.append(job)

    def admit(self):
        job = self.waiting[0]
        n = len(job.tokens)
        resumed = job.prompt_len if job.was_admitted else None
        origin = Origin(resumed, self.random.choice((None, "a", "b")))
        hint = self.manager.probe(job.ns, job.tokens, n - 1, job.shape, origin)
        want = -(-(n + 4) // P) + len(self.running)
        args = (job.ns, job.tokens, n - 1, job.shape, want)
        got = self.manager.admit(*args, origin)
        if got is None:
            return
        self.resets.append((got, job.ns, job.tokens[: got.hit.length]))
        self.kept += got.hit.source is not None
        assert got.hit == hint
        assert got.lease.slot not in [other.lease.slot for other in self.running]
        self.waiting.pop(0)
        self.hits += got.hit.length > 0
        job.lease, job.was_admitted = got.lease, True
        job.computed = job.planned = job.hit = got.hit.length
        job.replay_is_exact = self.manager.rule.is_exact(job.shape, got.hit.length)
        if got.hit.source is not None:
            job.replay_is_exact = not got.hit.source.approx
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
        resets, self.resets = self.resets, []
        return self.step, resets, rows

    def turn(self):
        """Launch step N+1 while N runs, then commit N."""
        running, self.flight = self.flight, self.launch()
        if running is not None:
            self.commit(*running)

    def reset(self, admission, ns, tokens):
        """What the worker does before the rows of a step: rings are emptied and replayed, or taken
        with what is below the hit."""
        hit, source = admission.hit, admission.hit.source
        ring: list[Any] = [None] * len(self.rings[0])
        if source is not None:
            ring = [row if row and row[0] < hit.length else None for row in self.rings[source.slot]]
        for i in range(hit.start, hit.length):
            ring[i % len(ring)] = (i, ns, tokens[: i + 1])
        self.rings[admission.lease.slot] = ring

    def commit(self, step, resets, rows):
        for admission in resets:
            self.reset(*admission)
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
        ring = self.rings[lease.slot]
        for row in range(start, end):
            if ring and self.manager.rule.num_windows:
                for i in range(max(0, row - W + 1), row) if is_live else ():
                    assert ring[i % len(ring)] == (i, job.ns, job.tokens[: i + 1])  # S5, B5
                ids = job.tokens[: row + 1] if is_live else None
                ring[row % len(ring)] = (row, job.ns, ids)
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
            self.ended.append(job)
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
        self.manager.release(job.lease, self.flight[0] if self.flight else None, self.window(job))
        self.running.remove(job)
        job.lease = None

    def window(self, job):
        if job.computed <= job.hit or not self.manager.keeps_windows(job.shape):
            return None
        ids = job.tokens[: job.computed].tobytes()
        session = self.random.choice((None, "a", "b"))
        return Window(job.ns, ids, job.hit, job.planned, job.lease.approx, session)

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
        slots = sum(v for k, v in self.manager.gauges().items() if k.startswith("window_slots"))
        assert slots == self.manager.facts.num_slots - 1


@pytest.mark.parametrize(
    ("seed", "windows", "warm"),
    [(0, 0, 0), (1, 2, 0), (2, 2, 1), (3, 1, 3), (4, 2, 3), (8, 3, 2)],
)
def test_every_row_reads_its_own_prefix_and_no_page_is_lost(make_manager, seed, windows, warm):
    """T2, T5, T6, T13-T16, T20, T24, T31, T36, B5, B24, B30-B34, S5."""
    slots = 6 + warm
    manager = make_manager(num_pages=30, num_slots=slots, windows=windows, warm=warm)
    machine = Machine(manager, seed)
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
    assert machine.done > 40 and machine.preempted > 2 and machine.hits > 20
    assert (machine.kept > 10) == bool(warm)
    for job in list(machine.running):
        machine.stop(job)
    machine.manager.committed(machine.step)
    machine.check()
    assert machine.manager.flush()
    assert machine.manager.gauges()["pages{state=free}"] == 29
    assert machine.manager.gauges()["window_slots{state=free}"] == slots - 1
