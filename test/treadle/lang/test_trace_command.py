"""`treadle trace`."""

from __future__ import annotations

from pathlib import Path

import pytest

import treadle as tr
from test.treadle.client.http_server import HttpServer
from test.treadle.lang.fake_backend import FakeBackend
from test.treadle.lang.test_remote import answer
from treadle import cli


@pytest.fixture
def file(backend: FakeBackend, tmp_path: Path) -> Path:
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run()
    return state.save_trace(tmp_path / "run.json")


def test_view_writes_a_page_beside_the_file(file: Path, capsys):
    assert cli.run(["trace", "view", str(file)]) == 0
    page = file.with_suffix(".html")
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text().startswith("<!doctype html>")


def test_replay_asks_the_other_server_and_compares(file: Path, tmp_path: Path, capsys):
    new = tmp_path / "new.json"
    with HttpServer(answer) as server:
        argv = ["trace", "replay", str(file), "--url", server.url, "--out", str(new)]
        assert cli.run(argv) == 0
    assert "same outputs: 1 of 1; failed: 0" in capsys.readouterr().out
    assert tr.Trace.load(new).backend == server.url


def test_a_file_that_is_no_trace_is_one_line(tmp_path: Path, capsys):
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert cli.run(["trace", "view", str(path)]) == 1
    assert cli.run(["trace", "view", str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().err.count("error: ") == 2
