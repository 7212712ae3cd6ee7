"""A local server: its command line, and what becomes of one that does not start. That one serves
and ends is shown by the end-to-end tests, which run on it.
"""

from __future__ import annotations

import pytest

import treadle as tr
from treadle.lang.engine import flag_words


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


def test_what_a_server_does_not_have_is_refused_by_name():
    engine = object.__new__(tr.Engine)  # none is started
    with pytest.raises(tr.Unsupported, match="no embeddings"):
        engine.encode("a")
    with pytest.raises(tr.Unsupported, match="a session is a name"):
        engine.open_session(100)


def test_a_model_is_needed():
    with pytest.raises(tr.ProgramError, match="needs a model"):
        tr.Engine()
