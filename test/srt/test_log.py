"""One line format for all processes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from treadle.srt.log import event, setup_logging


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_event_is_one_line_of_keys_and_values():
    line = event("loaded", {"pages": 3, "rate": 1234.5678, "what": "two words", "none": ""})
    assert line == "loaded pages=3 rate=1235 what='two words' none=''"
    assert event("idle", {}) == "idle"


def test_line_has_level_process_and_short_module_name(capsys: pytest.CaptureFixture[str]):
    setup_logging("info", "worker0")
    logging.getLogger("treadle.srt.procs.worker").info("loaded pages=3")
    logging.getLogger("treadle.srt.procs.worker").debug("unseen")
    line = capsys.readouterr().err
    assert re.fullmatch(r"[-0-9]+ [:0-9]+ INFO \[worker0\] procs\.worker: loaded pages=3\n", line)


def test_main_module_of_a_process_goes_by_its_file_name(capsys: pytest.CaptureFixture[str]):
    setup_logging("debug", "scheduler")
    logging.getLogger("__main__").debug("x")
    assert "] procs.test_log: x" in capsys.readouterr().err


def test_second_setup_replaces_the_first(capsys: pytest.CaptureFixture[str]):
    setup_logging("info", "a")
    setup_logging("warning", "b")
    logging.getLogger("x").info("unseen")
    logging.getLogger("x").warning("seen")
    assert len(capsys.readouterr().err.splitlines()) == 1
