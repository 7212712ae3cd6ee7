"""The loop of a worker that runs ahead, with a runner that the test plays."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from treadle.srt.errors import InvariantBroken
from treadle.srt.lifecycle import Shutdown
from treadle.srt.messages import Done, Flush, Message, StepPlan, StepResult
from treadle.srt.net.ipc import Endpoints, Hub, make_endpoints
from treadle.srt.procs.pipeline import pipeline_plans
from treadle.srt.profiling import Profile
from treadle.srt.worker.profiler import Profiler

WAIT_S = 60.0


@dataclass
class PlayedStep:
    step: int
    is_done: threading.Event

    def result(self) -> StepResult:
        assert self.is_done.wait(WAIT_S)
        if self.step < 0:
            raise RuntimeError("the device is gone")
        return StepResult(self.step, array("i", [7]))


@dataclass
class PlayedRunner:
    """The device ends no step before `release`d launches have been made."""

    release: int
    launched: list[int] = field(default_factory=list)
    is_done: threading.Event = field(default_factory=threading.Event)
    profiler: Profiler = field(default_factory=Profiler)

    def launch(self, plan: StepPlan) -> PlayedStep:
        self.launched.append(plan.step)
        if len(self.launched) >= self.release:
            self.is_done.set()
        return PlayedStep(plan.step, self.is_done)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def ends(tmp_path: Path) -> Endpoints:
    return make_endpoints("ipc", tmp_path, 1)


def plan(step: int) -> StepPlan:
    return StepPlan(step, array("i"), array("i"))


def run(hub: Hub, ends: Endpoints, runner: PlayedRunner, *messages: Message) -> None:
    inbox, outbox = hub.inbox(ends.workers[0]), hub.outbox(ends.workers[0])
    for message in messages:
        outbox.send(message)
    pipeline_plans(inbox, runner, hub.outbox(ends.scheduler))


def test_next_plan_is_launched_before_the_last_has_ended(hub: Hub, ends: Endpoints):
    scheduler = hub.inbox(ends.scheduler)
    runner = PlayedRunner(release=2)
    run(hub, ends, runner, plan(1), plan(2), Shutdown("x"))
    assert runner.launched == [1, 2]
    got = [scheduler.recv(WAIT_S) for _ in range(2)]
    assert [x.step for x in got if isinstance(x, StepResult)] == [1, 2]


def test_profiles_are_answered_in_order(hub: Hub, ends: Endpoints):
    scheduler = hub.inbox(ends.scheduler)
    run(hub, ends, PlayedRunner(1), plan(1), Profile(4, None), Shutdown("x"))
    assert isinstance(scheduler.recv(WAIT_S), StepResult)
    assert scheduler.recv(WAIT_S) == Done(4, False, "no profile is being taken")


def test_step_that_fails_ends_the_process(hub: Hub, ends: Endpoints):
    with pytest.raises(RuntimeError, match="the device is gone"):
        run(hub, ends, PlayedRunner(1), plan(-1))


def test_other_messages_are_a_bug(hub: Hub, ends: Endpoints):
    with pytest.raises(InvariantBroken, match="cannot handle Flush"):
        run(hub, ends, PlayedRunner(1), Flush(1))
