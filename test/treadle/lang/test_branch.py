"""Branches: one task while there is work, and an end for everything that waits."""

from __future__ import annotations

import asyncio

from test.treadle.lang.fake_backend import FakeBackend
from treadle.client.background import background
from treadle.client.errors import Cancelled
from treadle.lang.backend import AnswerRequest
from treadle.lang.branch import Branch, Evaluate, Fork, Gather
from treadle.lang.cells import Cell
from treadle.lang.ir import Gen, Text
from treadle.lang.run import Run
from treadle.lang.sampling import Sampling


async def tasks() -> int:
    return len(asyncio.all_tasks()) - 1


def branch(backend: FakeBackend) -> Branch:
    return Branch(Run(backend, Sampling()))


def test_an_idle_branch_has_no_task():
    before = background().wait(tasks())
    branches = [branch(FakeBackend()) for _ in range(50)]
    for each in branches:
        each.submit(Evaluate(Text("a"), {}))
    for each in branches:
        each.idle().result(60)
    assert background().wait(tasks()) <= before
    assert {each.transcript.shown for each in branches} == {"a"}


def test_cancelling_before_the_first_step_still_fails_what_waits():
    """A task that is cancelled before it has run runs none of its own clean-up."""
    one, cell = branch(FakeBackend()), Cell()

    async def at_once() -> None:
        one.submit(Evaluate(Gen("x", Sampling()), {"x": cell}))
        one.cancel()

    background().wait(at_once())
    cell.done.result(60)
    assert isinstance(cell.error, Cancelled) and isinstance(one.error, Cancelled)


def test_cancelling_a_parent_cancels_children_that_have_not_begun():
    backend = FakeBackend(lambda request: asyncio.Event().wait())
    parent = branch(backend)
    child, cell = Branch(parent.owner, parent), Cell()
    parent.children.append(child)
    parent.submit(Evaluate(Text("a"), {}))
    parent.submit(Evaluate(Gen("x", Sampling()), {"x": Cell()}))
    parent.submit(Fork([child]))
    child.submit(Evaluate(Gen("y", Sampling()), {"y": cell}))
    while not backend.asked:
        pass
    parent.cancel()
    cell.done.result(60)
    assert isinstance(cell.error, Cancelled)


def test_cancelling_a_parent_that_gathers_leaves_other_branches_alone():
    """A branch may gather states that are not its forks."""
    gate = asyncio.Event()

    async def reply(request: AnswerRequest) -> str:
        await gate.wait()
        return "42"

    backend = FakeBackend(reply)
    other, cell = branch(backend), Cell()
    other.submit(Evaluate(Text("a"), {}))
    other.submit(Evaluate(Gen("x", Sampling()), {"x": cell}))
    one = branch(backend)
    one.submit(Gather([other], {"x": (Cell(), [cell])}))
    one.submit(Evaluate(Text("a"), {}))
    background().wait(tasks())  # it gathers now
    one.cancel()
    one.idle().result(60)
    background().call(gate.set)
    other.idle().result(60)
    assert isinstance(one.error, Cancelled)
    assert other.error is None and cell.value == "42"


def test_a_branch_that_has_ended_cannot_be_cancelled():
    one = branch(FakeBackend())
    one.submit(Evaluate(Text("a"), {}))
    one.end()
    one.idle().result(60)
    one.end()
    one.idle().result(60)
    one.cancel()
    one.idle().result(60)
    assert one.error is None or isinstance(one.error, Cancelled)
