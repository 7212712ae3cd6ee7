"""The console command: exit status and what it prints, without starting processes."""

from __future__ import annotations

import pytest

from treadle import __version__, cli


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
