"""Servers under test that are asked by blocking calls: a process and the wire that it speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.serving.client import LlamaWire, Reply, TreadleWire, Wire

from treadle.bench.processes import (
    START_S,
    Launch,
    ServerProcess,
    free_port,
    llama_launch,
    llama_version,
    stop_servers_on_term,
    treadle_launch,
)

__all__ = [
    "START_S",
    "Server",
    "Spec",
    "free_port",
    "llama_spec",
    "llama_version",
    "stop_servers_on_term",
    "treadle_spec",
]


@dataclass(frozen=True, slots=True)
class Spec:
    """How to start a server, as `Launch`, and how to ask it."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    wire: Wire
    ready_path: str


class Server(ServerProcess):
    """A context manager; `generate` may be called from several threads."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(Launch(spec.name, spec.argv, spec.environ, spec.ready_path))
        self.spec = spec

    def generate(self, prompt: list[int], max_tokens: int) -> Reply:
        """Greedy. Raises RuntimeError when another number of tokens came back."""
        reply = self.spec.wire.generate(self.port, prompt, max_tokens)
        if len(reply.token_ids) != max_tokens or len(reply.times_s) != max_tokens:
            raise RuntimeError(f"{self.name}: {len(reply.token_ids)} tokens, not {max_tokens}")
        return reply

    def tokenize(self, text: str) -> list[int]:
        return self.spec.wire.tokenize(self.port, text, add_special=False)

    def prefix(self) -> list[int]:
        """What the model wants before a text: BOS, or nothing."""
        return self.spec.wire.tokenize(self.port, "", add_special=True)


def treadle_spec(command: str, model: Path, threads: int, more: Sequence[str] = ()) -> Spec:
    """`command` starts our server and is given the flags of the test."""
    return _spec(treadle_launch(command, str(model), threads, more), TreadleWire())


def llama_spec(name: str, binary: Path, model: Path, threads: int, more: Sequence[str]) -> Spec:
    """`name` says in what it differs from the defaults, for which `more` holds the flags."""
    return _spec(llama_launch(name, binary, model, threads, more), LlamaWire())


def _spec(launch: Launch, wire: Wire) -> Spec:
    return Spec(launch.name, launch.argv, launch.environ, wire, launch.ready_path)
