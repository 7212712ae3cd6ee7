"""Traces: a run as a file, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle as tr
from test.treadle.lang.fake_backend import FakeBackend, calling
from treadle.lang.trace import Trace


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tr.function
def everything(s):
    s += tr.user("1 + 2?")
    s += tr.agent("sum", [add])
    s += tr.user("Is it odd?") + tr.assistant(tr.select("odd", ["yes", "no"]))
    with s.fork(2) as forks:
        forks += tr.user("Why?") + tr.assistant(tr.gen("why"))
    return s["why"]


def scripted(backend: FakeBackend) -> FakeBackend:
    turns = iter([calling(("add", '{"a": 1, "b": 2}')), "3", "because", "since"])
    backend.reply = lambda request: next(turns)
    return backend


def test_a_trace_survives_its_file(backend: FakeBackend, tmp_path):
    scripted(backend)
    state = everything.run()
    path = state.save_trace(tmp_path / "run.json")
    loaded = Trace.load(path)
    assert loaded.entries[0].asked == backend.asked[0][1]
    assert [entry.kind for entry in loaded.entries] == [
        "generate", "tool", "generate", "select", "commit", "generate", "generate",
    ]  # fmt: skip
    again = Trace.load(loaded.save(tmp_path / "again.json"))
    assert again.entries[-1].told == loaded.entries[-1].told
    assert loaded.program == "everything" and sorted(loaded.values["why"]) == ["because", "since"]
    root, *children = loaded.branches
    assert {child.parent for child in children} == {root.id} and len(children) == 2
    totals = loaded.totals()
    assert (totals.num_requests, totals.num_tool_calls, totals.cached_tokens) == (6, 1, 16)


def test_each_message_is_in_the_file_once(backend: FakeBackend, tmp_path):
    scripted(backend)
    text = everything.run().save_trace(tmp_path / "run.json").read_text()
    assert text.count('"1 + 2?"') == 1


def test_what_failed_is_in_it_with_its_error(backend: FakeBackend, tmp_path):
    backend.reply = lambda request: tr.Refused(400, "bad")
    state = everything.run()
    loaded = Trace.load(state.save_trace(tmp_path / "run.json"))
    assert "HTTP 400: bad" in loaded.error and "HTTP 400: bad" in loaded.entries[0].error
    assert loaded.entries[0].told is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", json.dumps({"format": "other"})])
def test_another_file_is_no_trace(text, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(tr.ProgramError, match="x.json"):
        Trace.load(path)


def test_a_resumed_run_asks_only_what_was_not_answered(backend: FakeBackend, tmp_path):
    ran = []

    def count(x: int) -> int:
        """Count."""
        ran.append(x)
        return x

    @tr.function
    def long(s):
        s += tr.user("Count.")
        s += tr.agent("n", [count])
        s += tr.user("Is it odd?") + tr.assistant(tr.select("odd", ["yes", "no"]))
        s += tr.user("And?") + tr.assistant(tr.gen("last"))

    turns = iter([calling(("count", '{"x": 1}')), "1", tr.Unreachable("gone"), "done"])
    backend.reply = lambda request: next(turns)
    broken = long.run()
    assert isinstance(broken.error(), tr.Unreachable)
    resumed = long.run(resume=broken.save_trace(tmp_path / "run.json"))
    assert resumed["last"] == "done" and ran == [1]
    assert len(backend.asked) == 4 and len(backend.scored) == 1
    recalled = [entry.is_recalled for entry in resumed.trace().entries]
    assert recalled == [True, True, True, True, False]


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __repr__


def test_any_value_of_a_variable_can_be_saved(backend: FakeBackend, tmp_path: Path):
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run()
    odd: dict[str, Any] = {"big": 2**100, "half": "\ud800", "mute": Mute(), "\ud800": 1, "loop": []}
    odd["loop"].append(odd["loop"])
    for name, value in odd.items():
        state.set_var(name, value)
    found = tr.Trace.load(state.save_trace(tmp_path / "trace.json")).values
    assert found["big"] == str(2**100) and found["half"] == "\\ud800" and found["x"] == "42"
    assert found["mute"] == "a Mute" and found["loop"] == "[[...]]"


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", '{"format": "treadle-trace-1", "entries": [{"asked": []}], "messages": []}',
     '{"format": "treadle-trace-1", "entries": null, "messages": []}', '"\\ud800"'],
)  # fmt: skip
def test_a_file_of_another_form_is_told(content: str, tmp_path: Path):
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(tr.ProgramError, match="is no trace"):
        tr.Trace.load(path)
