"""Servers as child processes: up when they answer, gone when they are left."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from treadle.bench.control import Unready
from treadle.bench.processes import Launch, ServerProcess, llama_launch, treadle_launch

SERVE = ("-m", "http.server", "--bind", "127.0.0.1", "{port}")


def test_a_server_is_up_weighed_and_stopped():
    with ServerProcess(Launch("a", (sys.executable, *SERVE), {}, "/")) as server:
        server.wait_until_ready()
        (child,) = (p for p in psutil.Process().children() if str(server.port) in p.cmdline())
        assert server.memory().rss >= server.memory().pss > 0
    assert not child.is_running()


def test_a_server_that_does_not_come_up_shows_its_log():
    argv = (sys.executable, "-c", "raise SystemExit('no such model')")
    with (
        ServerProcess(Launch("a", argv, {}, "/")) as server,
        pytest.raises(Unready, match="no such model"),
    ):
        server.wait_until_ready()


def test_launches_name_model_threads_and_more_flags():
    ours = treadle_launch("python -m treadle.launch_server", "demo:x", 2, ("--page-size", "16"))
    assert str(ours).startswith("python -m treadle.launch_server --model-path demo:x --num-threads")
    assert ours.argv[-2:] == ("--page-size", "16")
    peer = llama_launch("llama.cpp", Path("/a/llama-server"), Path("/b/m.gguf"), 2, ("-np", "4"))
    assert str(peer).startswith("llama-server -m m.gguf -t 2 -tb 2")
    assert peer.environ["LD_LIBRARY_PATH"].startswith("/a")
