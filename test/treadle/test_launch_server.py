"""Both launch commands: exit status and what they print, without starting processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import __version__, cli, launch_server


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


def test_bad_flag_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert cli.run(["serve", "m", "--page-size", "x"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --page-size x")


def test_help_goes_to_standard_output_with_status_0(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        cli.run(["serve", "--help"])
    assert caught.value.code == 0
    assert "usage: treadle serve MODEL [flags]" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]):
    assert cli.run(["version"]) == 0
    assert capsys.readouterr().out == f"treadle {__version__}\n"


@pytest.mark.parametrize(("argv", "status"), [([], 2), (["bench"], 2), (["--help"], 0)])
def test_anything_else_shows_the_usage(
    argv: list[str], status: int, capsys: pytest.CaptureFixture[str]
):
    assert cli.run(argv) == status
    shown = capsys.readouterr()
    assert "treadle serve MODEL" in shown.out + shown.err
