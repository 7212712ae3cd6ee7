"""Loading progress on a terminal and elsewhere."""

from __future__ import annotations

import logging

import pytest

from treadle.srt.lifecycle import Progress
from treadle.srt.procs.progress import LoadingProgress


def test_bar_on_a_terminal_shows_the_sum_of_all_ranks(capsys: pytest.CaptureFixture[str]):
    bar = LoadingProgress(is_terminal=True)
    bar.update(Progress(0, 500, 1000, "blk.0"))
    bar.update(Progress(1, 250, 1000, "blk.1"))
    bar.update(Progress(0, 1000, 1000, "blk.9"))
    bar.update(Progress(1, 1000, 1000, "blk.9"))
    bar.close()
    shown = capsys.readouterr().err
    assert "loading blk.0" in shown
    assert "2.00k/2.00k" in shown


def test_lines_elsewhere_come_at_most_every_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    lines = LoadingProgress(is_terminal=False)
    with caplog.at_level(logging.INFO):
        for second in range(12):
            clock[0] = 100.0 + second
            lines.update(Progress(0, second, 11, "x"))
    lines.close()
    assert [r.message for r in caplog.records] == [
        "loading done_bytes=5 total_bytes=11",
        "loading done_bytes=10 total_bytes=11",
    ]


def test_nothing_is_drawn_without_progress(capsys: pytest.CaptureFixture[str]):
    LoadingProgress(is_terminal=True).close()
    assert capsys.readouterr().err == ""
