"""Profiles: one at a time, each leaves a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from treadle.srt.profiling import ProfileOptions
from treadle.srt.worker.profiler import Profiler


def test_a_profile_leaves_a_trace_with_the_operators_that_ran(tmp_path: Path):
    profiler = Profiler(rank=3)
    path = tmp_path / "new/p-rank3.trace.json"
    assert profiler.start(ProfileOptions(str(tmp_path / "new"), "p")) == (True, str(path))
    began, why = profiler.start(ProfileOptions(str(tmp_path), "q"))
    assert not began and str(path) in why
    with profiler.marks.part("step 1"), profiler.marks.part("sample"):
        torch.ones(4) @ torch.ones(4)
    profiler.stepped()
    assert profiler.stop() == (True, str(path))
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert {"aten::dot", "treadle.step 1", "treadle.sample"} <= names
    assert profiler.stop() == (False, "no profile is being taken")


def test_a_profile_ends_by_itself_after_its_steps(tmp_path: Path):
    profiler = Profiler()
    profiler.start(ProfileOptions(str(tmp_path), "p", num_steps=2))
    path = tmp_path / "p-rank0.trace.json"
    profiler.stepped()
    assert path.read_text() == ""
    profiler.stepped()
    assert "traceEvents" in path.read_text()
    profiler.stepped()


def test_a_profile_that_nobody_stops_is_cut_and_its_late_stop_names_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treadle.srt.worker.profiler.MAX_STEPS", 2)
    profiler = Profiler()
    profiler.start(ProfileOptions(str(tmp_path), "p"))
    path = tmp_path / "p-rank0.trace.json"
    profiler.stepped()
    assert path.read_text() == ""
    profiler.stepped()
    assert "traceEvents" in path.read_text()
    assert profiler.stop() == (True, str(path))
    assert profiler.stop() == (False, "no profile is being taken")


def test_a_folder_that_cannot_be_written_is_an_answer(tmp_path: Path):
    (tmp_path / "file").write_text("")
    began, why = Profiler().start(ProfileOptions(str(tmp_path / "file/x"), "p"))
    assert not began and "output_dir" in why
