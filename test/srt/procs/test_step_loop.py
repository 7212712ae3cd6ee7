"""The loop of the scheduler process against a worker without torch, over real sockets."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from test.fake_model import FakeModel
from test.fakes import FakeWorker
from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.config import CacheSection, SchedSection
from treadle.srt.errors import InvariantBroken, WorkerLost
from treadle.srt.lifecycle import Progress, Shutdown
from treadle.srt.messages import (
    AbortAll,
    AbortRequest,
    Done,
    Flush,
    GenerateRequest,
    Message,
    ReleaseSessions,
    RequestId,
    RequestOutput,
    SamplingParams,
    Stats,
    StatsRequest,
    StepPlan,
    TokenOutput,
)
from treadle.srt.model_config import LayerKind
from treadle.srt.net.ipc import Hub, make_endpoints
from treadle.srt.procs import step_loop
from treadle.srt.procs.step_loop import Bookkeeping, Ports, StepLoop
from treadle.srt.sched.scheduler import Scheduler
from treadle.srt.snapshot import Snapshot, SnapshotRequest

PAGE, PAGES, SLOTS, CONTEXT = 4, 64, 5, 100
WAIT_S = 60.0
SCHED = SchedSection(max_running=SLOTS - 1, chunk_tokens=32, seed=1)


def make_bookkeeping(sched: SchedSection = SCHED) -> Bookkeeping:
    facts = CacheFacts(PAGES, SLOTS, PAGE, True, "lru")
    rule = ReplayRule((LayerKind.GLOBAL,), 0, ReplayShape("bounded", 0, 1), PAGE)
    manager = CacheManager(facts, rule)
    return Bookkeeping(Scheduler(sched, CacheSection(page_size=PAGE), manager, CONTEXT), manager)


class Bench:
    """The loop under test between a tokenizer and a worker that the test plays."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        ends = make_endpoints("ipc", folder, 1)
        self.inbox = hub.inbox(ends.scheduler)
        self.tokenizer = hub.inbox(ends.tokenizer)
        self.worker = hub.inbox(ends.workers[0])
        self.to_scheduler = hub.outbox(ends.scheduler)
        workers = (hub.outbox(ends.workers[0]),)
        self.ports = Ports(self.inbox, hub.outbox(ends.tokenizer), workers)
        self.device = FakeWorker(FakeModel(), PAGE, PAGES, SLOTS)
        self.books: list[Bookkeeping] = []

    def loop(self, sched: SchedSection = SCHED) -> StepLoop:
        def make() -> Bookkeeping:
            self.books.append(make_bookkeeping(sched))
            return self.books[-1]

        return StepLoop(make, self.ports, sched.watchdog_s, sched.decode_log_interval)

    def tell(self, loop: StepLoop, *messages: Message) -> None:
        """Sends and lets the loop take them, one turn each."""
        for message in messages:
            self.to_scheduler.send(message)
            loop.turn(0.0)

    def plan(self) -> StepPlan:
        message = self.worker.recv(WAIT_S)
        assert isinstance(message, StepPlan)
        return message

    def serve(self, loop: StepLoop, rid: str) -> list[RequestOutput]:
        """Plays the worker until the request has ended; its outputs."""
        got: list[RequestOutput] = []
        while not (got and got[-1].finish):
            self.tell(loop, self.device.execute(self.plan()))
            got += [x for x in self.outputs() if x.rid == rid]
        return got

    def outputs(self) -> tuple[RequestOutput, ...]:
        message = self.tokenizer.recv(WAIT_S)
        assert isinstance(message, TokenOutput)
        return message.outputs


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Hub() as hub:
        yield Bench(hub, tmp_path)


def request(rid: str, prompt: int = 6, output: int = 3) -> GenerateRequest:
    sampling = SamplingParams(output, seed=1)
    return GenerateRequest(RequestId(rid), array("i", range(prompt)), sampling)


ALONE = replace(SCHED, overlap=False)


def test_request_is_planned_answered_and_ended(bench: Bench):
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"))
    got = bench.serve(loop, "a")
    oracle = bench.device.model.oracle(range(6), SamplingParams(3, seed=1), CONTEXT)
    assert [t for x in got for t in x.token_ids] == oracle.token_ids
    assert got[-1].finish is not None and got[-1].finish.reason == "length"


@pytest.mark.parametrize(("sched", "ahead"), [(SCHED, 2), (ALONE, 1)])
def test_at_most_one_step_is_planned_ahead(bench: Bench, sched: SchedSection, ahead: int):
    loop = bench.loop(sched)
    bench.tell(loop, request("a", prompt=90))  # three chunks
    plans = [bench.plan() for _ in range(ahead)]
    assert bench.worker.recv(0.01) is None
    bench.tell(loop, bench.device.execute(plans[0]))
    assert bench.plan().step == ahead


def test_refused_request_is_answered_without_a_step(bench: Bench):
    loop = bench.loop()
    bench.tell(loop, request("a", prompt=CONTEXT + 1))
    (output,) = bench.outputs()
    assert output.finish is not None and output.finish.status == 400
    assert bench.worker.recv(0.01) is None


def test_aborts_end_requests(bench: Bench):
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"), request("b"), request("c"), AbortRequest(RequestId("b"), "user"))
    assert [x.rid for x in bench.outputs()] == ["b"]
    bench.tell(loop, AbortAll("client"))
    assert [x.rid for x in bench.outputs()] == ["c"]
    bench.tell(loop, bench.device.execute(bench.plan()))
    assert [x.rid for x in bench.outputs()] == ["a"]
    assert not bench.books[0].scheduler.has_work


def test_released_sessions_are_a_hint_without_an_answer(bench: Bench):
    """D18: what runs in them goes on."""
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"), ReleaseSessions(("s",)))
    bench.tell(loop, bench.device.execute(bench.plan()))
    assert [x.rid for x in bench.outputs()] == ["a"]


def test_flush_is_answered_with_its_token(bench: Bench):
    loop = bench.loop()
    bench.tell(loop, Flush(5))
    reply = bench.tokenizer.recv(WAIT_S)
    assert isinstance(reply, Done) and (reply.token, reply.ok) == (5, True)
    bench.tell(loop, Done(9, True, "profiled"))
    assert bench.tokenizer.recv(WAIT_S) == Done(9, True, "profiled")
    bench.tell(loop, request("a"), Flush(6))
    reply = bench.tokenizer.recv(WAIT_S)
    assert isinstance(reply, Done) and (reply.token, reply.ok) == (6, False)


def test_stats_have_the_numbers_of_scheduler_cache_and_loop(bench: Bench):
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"))
    bench.serve(loop, "a")
    bench.tell(loop, StatsRequest(9))
    stats = bench.tokenizer.recv(WAIT_S)
    assert isinstance(stats, Stats) and stats.token == 9
    assert stats.counters["steps"] == 3
    assert stats.counters["layer_rows{layer=0}"] == 8
    assert stats.counters["cache_invariant_failures"] == 0
    for part in ("plan", "wait", "run", "sample"):
        assert stats.counters[f"step_seconds_bucket{{phase={part},le=+Inf}}"] == 3
    assert stats.gauges["running"] == 0
    assert {"gen_throughput", "pages{state=free}"} <= set(stats.gauges)


def test_shutdown_ends_the_loop(bench: Bench):
    loop = bench.loop()
    bench.to_scheduler.send(Shutdown("x"))
    loop.run()


def test_message_for_somebody_else_is_a_bug(bench: Bench):
    loop = bench.loop()
    with pytest.raises(InvariantBroken, match="cannot handle Progress"):
        bench.tell(loop, Progress(0, 1, 1, ""))


def test_step_beyond_the_watchdog_ends_the_process(bench: Bench):
    loop = bench.loop(replace(ALONE, watchdog_s=0.01))
    bench.to_scheduler.send(request("a"))
    with pytest.raises(WorkerLost, match=r"--watchdog-timeout 0.01"):
        loop.run()


def test_result_out_of_order_is_a_bug(bench: Bench):
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"))
    result = bench.device.execute(bench.plan())
    with pytest.raises(InvariantBroken, match="out of order"):
        bench.tell(loop, replace(result, step=77))


def test_broken_bookkeeping_is_counted_when_idle_and_starts_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(step_loop, "IDLE_CHECK_S", 0.01)
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"))
    bench.serve(loop, "a")
    bench.books[0].cache.pages.take(1)  # a page that nobody will ever give back
    with caplog.at_level(logging.ERROR):
        loop.turn(0.0)
    assert "cache_invariant_broken" in caplog.text
    assert len(bench.books) == 2
    bench.device = FakeWorker(FakeModel(), PAGE, PAGES, SLOTS)
    bench.tell(loop, request("b"))
    assert bench.serve(loop, "b")
    bench.tell(loop, StatsRequest(1))
    stats = bench.tokenizer.recv(WAIT_S)
    assert isinstance(stats, Stats)
    assert stats.counters["cache_invariant_failures"] == 1


def test_a_snapshot_has_the_numbers_of_stats_and_what_they_are_of(bench: Bench):
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"))
    bench.serve(loop, "a")
    bench.tell(loop, request("b"), SnapshotRequest(7), StatsRequest(8))
    found, stats = bench.tokenizer.recv(WAIT_S), bench.tokenizer.recv(WAIT_S)
    assert isinstance(found, Snapshot) and isinstance(stats, Stats)
    assert found.token == 7
    assert (found.counters, found.gauges) == (stats.counters, stats.gauges)
    assert [(view.rid, view.state) for view in found.requests] == [("b", "running")]
    assert found.tree.num_nodes == len(found.tree.pages) - 1 > 0
    assert found.tree.num_pages == sum(found.tree.pages)


def test_sound_bookkeeping_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(step_loop, "IDLE_CHECK_S", 0.01)
    loop = bench.loop(ALONE)
    bench.tell(loop, request("a"))
    bench.serve(loop, "a")
    loop.turn(0.0)
    assert len(bench.books) == 1


def test_loop_sleeps_for_ever_when_idle_and_until_the_watchdog_when_a_step_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    asked: list[float | None] = []
    recv = bench.inbox.recv

    def note(timeout_s: float | None = None) -> Message | None:
        asked.append(timeout_s)
        return recv(timeout_s)

    monkeypatch.setattr(bench.inbox, "recv", note)
    loop = bench.loop(replace(ALONE, watchdog_s=50.0))
    bench.tell(loop, request("a"))
    bench.tell(loop, StatsRequest(1))
    assert asked[0] is None
    assert asked[1] is not None and asked[1] >= 49.0


def test_status_line_comes_every_interval(bench: Bench, caplog: pytest.LogCaptureFixture):
    loop = bench.loop(replace(ALONE, decode_log_interval=2))
    with caplog.at_level(logging.INFO):
        bench.tell(loop, request("a", output=5))
        bench.serve(loop, "a")
    lines = [r.message for r in caplog.records if r.message.startswith("status ")]
    assert [line.split()[1] for line in lines] == ["step=2", "step=4"]
    assert "running=1 waiting=0 free_pages=" in lines[0]
