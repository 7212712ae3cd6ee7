"""The launch command: exit status and what it prints, without starting processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import launch_server


def test_missing_model_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert launch_server.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --model-path is required")


def test_unknown_model_is_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restore_logging: None
):
    assert launch_server.main(["--model", str(tmp_path / "none"), "--log-level", "error"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: model") and "none" in line


def test_notices_come_before_the_error(capsys: pytest.CaptureFixture[str]):
    assert launch_server.main(["--enable-metrics"]) == 1
    assert capsys.readouterr().err.splitlines()[0].startswith("note: --enable-metrics has no")
