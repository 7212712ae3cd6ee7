"""What a script says once."""

from __future__ import annotations

import pytest

import treadle as tr
from test.treadle.client.http_server import HttpServer
from test.treadle.lang.fake_backend import FakeBackend


def test_the_default_backend_serves_runs_that_name_none(backend: FakeBackend):
    other = FakeBackend(lambda request: "43")
    tr.set_default_backend(other)
    state = tr.function(lambda s: s.append("a" + tr.gen("x"))).run()
    assert state["x"] == "43" and backend.asked == []


def test_questions_to_the_server_go_to_the_default_one(backend: FakeBackend):
    with HttpServer(lambda asked: {"path": asked.path}) as server:
        endpoint = tr.RuntimeEndpoint(server.url)
        tr.set_default_backend(endpoint)
        assert tr.get_server_info() == {"path": "/server_info"}
        tr.flush_cache()
        endpoint.close()
    assert server.asked[-1].path == "/flush_cache"


def test_other_backends_have_no_such_answers(backend: FakeBackend):
    with pytest.raises(tr.Unsupported, match="needs a treadle server"):
        tr.get_server_info()
