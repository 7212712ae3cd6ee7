"""A local server: its command line, and what becomes of one that does not start. That one serves
and ends is shown by the end-to-end tests, which run on it.
"""

from __future__ import annotations

import socket
import sys

import pytest

import treadle as tr
from treadle.lang.engine import LOG_LINES, _hold, _Process, flag_words


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
    with _hold(0) as held, pytest.raises(tr.EngineFailed, match="did not start in 0.3 s"):
        _Process(child(chatters), held.getsockname()[1], 0.3)


SERVES = """
import http.server, threading

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()

    def log_message(self, *words):
        pass

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read(1)
for i in range(1000): print("line", i, file=sys.stderr)
"""


def test_a_server_is_asked_whether_it_serves_and_its_last_lines_are_kept():
    """Its log may be silent."""
    with _hold(0) as held:
        port = held.getsockname()[1]
        server = _Process([*child(SERVES), str(port)], port, 60)
    assert server._popen.stdin is not None and not server._log
    server._popen.stdin.close()  # goes on to the lines, and ends
    server._popen.wait(60)
    server._reader.join(60)
    assert len(server._log) == LOG_LINES and server._log[-1] == "line 999\n"
    server.stop()


def test_a_port_on_which_another_server_listens_is_told():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(tr.EngineFailed, match=f"port {port}"):
            tr.Engine("demo:v41-mini", port=port)


def test_what_a_server_does_not_have_is_refused_by_name():
    engine = object.__new__(tr.Engine)  # none is started
    with pytest.raises(tr.Unsupported, match="no embeddings"):
        engine.encode("a")
    with pytest.raises(tr.Unsupported, match="a session is a name"):
        engine.open_session(100)


def test_a_model_is_needed():
    with pytest.raises(tr.ProgramError, match="needs a model"):
        tr.Engine()
