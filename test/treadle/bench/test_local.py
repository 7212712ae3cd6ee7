"""Servers of commands: named, or started for them."""

from __future__ import annotations

import argparse
import sys
import urllib.request
from collections.abc import Sequence

import pytest

from treadle.bench import local
from treadle.bench.control import Unready
from treadle.bench.local import add_server, served
from treadle.bench.processes import Launch


def args(*argv: str) -> argparse.Namespace:
    found = argparse.ArgumentParser()
    add_server(found)
    return found.parse_args(argv)


def test_a_running_server_takes_no_flags():
    with served(args("--base-url", "http://a:1/"), ()) as url:
        assert url == "http://a:1"
    with pytest.raises(Unready, match="--page-size is for a server that is started"):
        served(args("--base-url", "http://a:1"), ("--page-size", "16")).__enter__()
    with pytest.raises(Unready, match="--model-path is for a server that is started"):
        served(args("--base-url", "http://a:1", "--model", "m"), ()).__enter__()
    with pytest.raises(Unready, match="give --base-url, or --model-path"):
        served(args(), ()).__enter__()


def test_the_port_is_not_for_the_user_to_say():
    for flags in (["--port", "3"], ["--port=3"], ["--host", "a"]):
        with pytest.raises(Unready, match="gets a free port"):
            served(args("--model", "m"), flags).__enter__()


def test_a_server_is_started_with_the_flags_that_the_command_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
):
    heard: list[object] = []

    def launch(command: str, model: str, threads: int | None, more: Sequence[str]) -> Launch:
        heard.extend([model, threads, more])
        serve = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}")
        return Launch("ours", serve, {}, "/")

    monkeypatch.setattr(local, "treadle_launch", launch)
    with served(args("--model", "m"), ["--page-size", "16"]) as url:
        assert urllib.request.urlopen(url + "/").status == 200
    assert heard == ["m", None, ["--page-size", "16"]]


def test_a_server_that_does_not_come_up_says_why():
    with pytest.raises(Unready, match="no/such/model"):
        served(args("--model-path", "no/such/model"), ()).__enter__()
