"""A local server: its command line, and what becomes of one that does not start. That one serves
and ends is shown by the end-to-end tests, which run on it.
"""

from __future__ import annotations

import sys

import pytest

import treadle as tr
from treadle.lang.engine import LOG_LINES, _Process, flag_words


def test_flags_are_spelled_as_on_the_command_line():
    flags: dict[str, str | int | float | bool] = {
        "num_threads": 1,
        "kv_cache_memory": "64M",
        "log_requests": True,
        "warmup": False,
    }
    assert flag_words(flags) == [
        "--num-threads", "1", "--kv-cache-memory", "64M", "--log-requests", "--no-warmup",
    ]  # fmt: skip


def test_a_server_that_does_not_start_says_why():
    with pytest.raises(tr.EngineFailed, match="no-such-flag"):
        tr.Engine("demo:v41-mini", no_such_flag=1)


def child(code: str) -> list[str]:
    return [sys.executable, "-c", f"import sys, time\n{code}"]


def test_a_start_is_bounded_however_much_the_server_says():
    chatters = "while True: print('loading', file=sys.stderr, flush=True); time.sleep(0.01)"
    with pytest.raises(tr.EngineFailed, match="did not start in 0.3 s"):
        _Process(child(chatters), 0.3)


def test_of_a_serving_server_only_the_last_lines_are_kept():
    serves = (
        "print('listening host=h port=7\\nserving start_s=1', file=sys.stderr, flush=True)\n"
        "sys.stdin.read(1)\n"
        "for i in range(1000): print('line', i, file=sys.stderr)"
    )
    server = _Process(child(serves), 60)
    assert server._popen.stdin is not None
    server._popen.stdin.close()  # goes on to the lines, and ends
    server._popen.wait(10)
    server._reader.join(10)
    assert server.port == 7 and server._lines.qsize() <= 1
    assert len(server._log) == LOG_LINES and server._log[-1] == "line 999\n"
    server.stop()


def test_what_a_server_does_not_have_is_refused_by_name():
    engine = object.__new__(tr.Engine)  # none is started
    with pytest.raises(tr.Unsupported, match="no embeddings"):
        engine.encode("a")
    with pytest.raises(tr.Unsupported, match="a session is a name"):
        engine.open_session(100)


def test_a_model_is_needed():
    with pytest.raises(tr.ProgramError, match="needs a model"):
        tr.Engine()
