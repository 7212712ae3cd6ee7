"""The worker's loop with a runner that the test plays; loading is in the end-to-end tests."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.srt.errors import ConfigError, InvariantBroken
from treadle.srt.lifecycle import Progress, Ready, Shutdown
from treadle.srt.messages import Done, Flush, Message, StepPlan, StepResult
from treadle.srt.net.ipc import Endpoints, Hub, make_endpoints
from treadle.srt.procs import worker
from treadle.srt.profiling import Profile, ProfileOptions
from treadle.srt.worker.profiler import Profiler

from .test_boot import make_boot

WAIT_S = 60.0


class PlayedRunner:
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.profiler = Profiler()

    def execute(self, plan: StepPlan) -> StepResult:
        self.steps.append(plan.step)
        return StepResult(plan.step, array("i", [7]))

    def capacity(self, rank: int) -> Ready:
        return Ready("worker", rank, 10, 3)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def ends(tmp_path: Path) -> Endpoints:
    return make_endpoints("ipc", tmp_path, 2)


def tell(hub: Hub, address: str, *messages: Message) -> None:
    outbox = hub.outbox(address)
    for message in messages:
        outbox.send(message)


def plan(step: int) -> StepPlan:
    return StepPlan(step, array("i"), array("i"))


@pytest.mark.parametrize(("rank", "answers"), [(0, 2), (1, 0)])
def test_plans_run_in_order_and_rank_0_answers(
    hub: Hub,
    ends: Endpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rank: int,
    answers: int,
):
    runner = PlayedRunner()
    monkeypatch.setattr(worker, "_load", lambda boot, launcher: runner)
    scheduler, launcher = hub.inbox(ends.scheduler), hub.inbox(ends.launcher)
    boot = replace(make_boot(tmp_path), rank=rank, endpoints=ends)
    tell(hub, ends.workers[rank], plan(0), plan(1), Shutdown("x"))
    worker.serve(boot, hub, hub.outbox(ends.launcher))
    assert launcher.recv(WAIT_S) == Ready("worker", rank, 10, 3)
    assert runner.steps == [0, 1]
    got = [scheduler.recv(WAIT_S if i < answers else 0.01) for i in range(2)]
    assert [x.step for x in got if isinstance(x, StepResult)] == [0, 1][:answers]


def test_a_profile_of_some_steps_is_answered_and_written(hub: Hub, ends: Endpoints, tmp_path: Path):
    inbox, scheduler = hub.inbox(ends.workers[0]), hub.inbox(ends.scheduler)
    options = ProfileOptions(str(tmp_path / "out"), "mine", num_steps=1)
    stop = Profile(2, None)
    tell(hub, ends.workers[0], Profile(1, options), plan(0), stop, Shutdown("x"))
    worker.execute_plans(inbox, PlayedRunner(), hub.outbox(ends.scheduler))  # type: ignore[arg-type]
    path = tmp_path / "out/mine-rank0.trace.json"
    assert scheduler.recv(WAIT_S) == Done(1, True, str(path))
    assert isinstance(scheduler.recv(WAIT_S), StepResult)
    assert scheduler.recv(WAIT_S) == Done(2, False, "no profile is being taken")
    assert "traceEvents" in path.read_text()


def test_message_for_somebody_else_is_a_bug(hub: Hub, ends: Endpoints):
    inbox = hub.inbox(ends.workers[0])
    tell(hub, ends.workers[0], Flush(1))
    with pytest.raises(InvariantBroken, match="cannot handle Flush"):
        worker.execute_plans(inbox, PlayedRunner(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_lack_of_memory_while_loading_names_the_flag(
    hub: Hub, ends: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    def load(*args: object) -> None:
        raise error

    monkeypatch.setattr("treadle.srt.worker.runner.Runner.load", load)
    with pytest.raises(ConfigError, match="out of memory while loading: lower --kv-cache-memory"):
        worker.serve(replace(make_boot(tmp_path), endpoints=ends), hub, hub.outbox(ends.launcher))


def test_progress_is_sent_a_few_times_per_second_and_at_the_end(
    hub: Hub, ends: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def load(config: object, model: object, path: object, progress) -> PlayedRunner:
        for i in range(101):
            progress(i, 100, "x")
        return PlayedRunner()

    monkeypatch.setattr(worker, "PROGRESS_INTERVAL_S", 1e9)
    monkeypatch.setattr("treadle.srt.worker.runner.Runner.load", load)
    tell(hub, ends.workers[1], Shutdown("x"))
    launcher = hub.inbox(ends.launcher)
    boot = replace(make_boot(tmp_path), endpoints=ends)
    worker.serve(boot, hub, hub.outbox(ends.launcher))
    assert launcher.recv(WAIT_S) == Progress(1, 100, 100, "x")
    assert isinstance(launcher.recv(WAIT_S), Ready)
