"""The command, and that this repository's README is that of its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.treadle.bench import results
from treadle.bench import report
from treadle.bench.__main__ import main
from treadle.bench.report_tables import END


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    results.write(tmp_path)
    (tmp_path / "README.md").write_text(f"<!-- report: servers turns -->\n{END}\n")
    return [
        "--results", str(tmp_path), "--readme", str(tmp_path / "README.md"),
        "--html", str(tmp_path / "new/page.html"),
    ]  # fmt: skip


def test_a_check_tells_the_difference_and_writes_nothing(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
):
    before = (tmp_path / "README.md").read_text()
    assert report.main([*flags, "--check"]) == 1
    assert "+| prefill, 512 tokens |" in capsys.readouterr().out
    assert (tmp_path / "README.md").read_text() == before and not (tmp_path / "new").exists()


def test_after_a_report_the_check_passes(tmp_path: Path, flags: list[str]):
    assert report.main(flags) == 0
    assert report.main([*flags, "--check"]) == 0
    assert (tmp_path / "new/page.html").read_text().startswith("<!doctype html>")


def test_a_marker_without_its_result_is_an_error(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "turns.json").unlink()
    assert main(["report", *flags, "--check"]) == 2
    assert "no such result" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"summary":[{"best_peer":1}]}'])
def test_a_damaged_result_is_named(tmp_path: Path, flags: list[str], text: str):
    (tmp_path / "turns.json").write_text(text)
    with pytest.raises(ValueError, match="^turns"):
        report.main(flags)


def test_the_readme_is_that_of_the_results(capsys: pytest.CaptureFixture[str]):
    """After new results: `python -m treadle.bench report`."""
    assert report.main(["--check"]) == 0, capsys.readouterr().out
