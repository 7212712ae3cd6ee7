"""Commands are found by name, and need no more than they use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from treadle.bench.__main__ import COMMANDS, main


def test_unknown_commands_are_told_what_there_is(capsys: pytest.CaptureFixture[str]):
    assert main(["sailing"]) == 2 and main([]) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in COMMANDS)
    assert told.count("error: there is no command") == 1 and "no command sailing\n" in told
    assert main(["--help"]) == 0 and "serving" in capsys.readouterr().out


def test_flags_are_passed_on(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["serving", "--help"])
    assert end.value.code == 0 and "--request-rate" in capsys.readouterr().out


def test_an_interrupt_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(argv: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.bench.report.main", interrupted)
    assert main(["report"]) == 130 and capsys.readouterr().err == "interrupted\n"


def test_loading_a_server_imports_no_torch_and_no_plots():
    code = (
        f"import sys; {'; '.join(f'import treadle.bench.{name}' for name in COMMANDS)}; "
        "assert not {'torch', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
