"""The command: exit status and what it prints."""

from __future__ import annotations

import pytest

from treadle import launch_router


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "--worker-urls"),
        (["--worker-urls", "ftp://x", "--port", "0"], "ftp://x"),
        (["--worker-urls", "a:1", "--retry-max-retries", "5"], "--retry-max-retries 5"),
        (["--worker-urls", "a:1", "--session-key-sources", "cookie"], "cookie"),
        (["--pd-disaggregation"], "--pd-disaggregation"),
    ],
)
def test_a_bad_flag_is_one_line(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], restore_logging: None
):
    assert launch_router.main(argv) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and words in line
