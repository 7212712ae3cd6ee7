"""Forks: a shared prefix is committed once, branches are apart, variables are gathered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend, noting
from treadle.lang.backend import Session
from treadle.lang.prompt import Prompt, TextPrompt


def test_the_prefix_is_committed_before_any_branch_asks(backend: FakeBackend):
    seen: list[int] = []
    backend.reply = noting(seen, lambda: len(backend.commits))

    @tr.function
    def forked(s):
        s += "shared"
        with s.fork(3) as forks:
            forks += lambda i: str(i) + tr.gen("x")

    state = forked.run()
    assert state["x"] == ["42"] * 3
    assert backend.commits == [TextPrompt("shared")] and seen == [1, 1, 1]
    assert sorted(backend.prompts) == ["shared0", "shared1", "shared2"]
    assert state.text() == "shared"


def test_a_prefix_that_cannot_be_committed_is_no_error(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
):
    async def refuses(prompt: Prompt, session: Session) -> dict[str, Any]:
        raise tr.Refused(503, "no room")

    monkeypatch.setattr(backend, "commit", refuses)

    @tr.function
    def forked(s):
        s += "shared"
        with s.fork(2) as forks:
            forks += tr.gen("x")

    state = forked.run()
    assert state.error() is None and state["x"] == ["42", "42"]


def test_a_copy_commits_nothing(backend: FakeBackend):
    @tr.function
    def copied(s):
        s += "a"
        other = s.copy()
        other += "b" + tr.gen("x")
        s += "c"
        return other.text()

    state = copied.run()
    assert (state.ret_value, state.text(), backend.commits) == ("ab42", "ac", [])


def test_branches_take_expressions_one_by_one(backend: FakeBackend):
    @tr.function
    def listed(s):
        s += "a"
        forks = s.fork(2)
        forks += ["b" + tr.gen("x"), "c" + tr.gen("y")]
        forks += "!"
        forks.join()
        return [fork.text() for fork in forks]

    state = listed.run()
    assert state.ret_value == ["ab42!", "ac42!"]
    assert (state["x"], state["y"]) == (["42"], ["42"])


def test_branches_know_the_variables_of_their_parent(backend: FakeBackend):
    """SGLang's forks lose the meta information."""

    @tr.function
    def inherits(s):
        s += "a" + tr.gen("x")
        child = s.fork(2)[1]
        return child["x"], child.get_meta_info("x")["cached_tokens"]

    assert inherits.run().ret_value == ("42", 4)


def test_a_branch_is_read_only_when_it_has_begun(backend: FakeBackend):
    """Its parent has to come so far first."""
    backend.reply = lambda request: asyncio.sleep(0.01, "42")
    program = tr.function(lambda s: s.append("a" + tr.gen("x")).fork(2)[1].text())
    assert program.run().ret_value == "a42"


def test_a_failed_branch_is_the_error_of_what_is_gathered_and_not_of_the_parent(
    backend: FakeBackend,
):
    backend.reply = lambda r: tr.Refused(400, "bad") if r.prompt.text.endswith("1") else "42"

    @tr.function
    def forked(s):
        s += "a"
        forks = s.fork(2)
        forks += lambda i: str(i) + tr.gen("x")
        forks.join()
        s += "b" + tr.gen("y")
        return [fork.error() for fork in forks]

    state = forked.run()
    assert state["y"] == "42" and state.error() is None
    assert state.ret_value[0] is None and isinstance(state.ret_value[1], tr.Refused)
    with pytest.raises(tr.Refused):
        state["x"]


def test_an_exception_in_the_block_cancels_the_branches(backend: FakeBackend):
    @tr.function
    def breaks(s):
        s += "a"
        with s.fork(2) as forks:
            forks += tr.gen("x")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        breaks.run()


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda s: s.fork(0), tr.ProgramError, "at least 1 branch, got 0"),
        (lambda s: s.fork(2, [1, 2]), tr.Unsupported, "position_ids_offset"),
        (lambda s: s.fork(2).join("concate_and_append"), tr.Unsupported, "no server joins KV"),
        (lambda s: s.fork(2).__iadd__(["a"]), tr.ProgramError, "1 expressions for 2 branches"),
    ],
)
def test_what_does_not_work_is_told(act, error, words, backend: FakeBackend):
    state = tr.function(lambda s: act(s)).run()
    assert isinstance(state.error(), error) and words in str(state.error())


def test_what_branches_have_only_inherited_is_not_gathered(backend: FakeBackend):
    replies = iter(["old", "new", "y", "y"])
    backend.reply = lambda request: next(replies)

    @tr.function
    def renews(s):
        s += "a" + tr.gen("x")
        forks = s.fork(2)
        s += tr.gen("x")
        s.sync()
        forks += tr.gen("y")
        forks.join()
        return s["x"], s["y"]

    assert renews.run().ret_value == ("new", ["y", "y"])


def test_what_a_branch_of_a_branch_was_given_is_gathered(backend: FakeBackend):
    @tr.function
    def deep(s):
        s += "a"
        child = s.copy()
        child.set_var("x", 1)
        s.gather([child.copy()])
        return s["x"]

    assert deep.run().ret_value == [1]


def test_a_branch_that_gathers_itself_is_told(backend: FakeBackend):
    @tr.function
    def itself(s):
        forks = s.fork(2)
        forks[0].gather(forks)

    assert "cannot gather itself" in str(itself.run().error())
