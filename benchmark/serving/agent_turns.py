"""An agent's turns, prefill, decode and parallel requests on our server and llama.cpp's.

    python -m benchmark.serving.agent_turns [--model FILE.gguf] --llama-server PATH \\
        [--sections turns,prefill,decode,parallel] [--rounds 5] [--threads 2] [--out agent_turns]

Run from the root of the repository, on a machine that does nothing else. Every step runs on all
servers, one after the other, in an order that changes with the round; the servers stay up
together. Prompts are token ids, equal on all servers but for what each has generated itself.
Without --llama-server only ours runs; with `--treadle-cmd ""` only the other.

turns     the conversation of `conversation.py`: ttft_s, rows (of the prompt that were run), decode
          tokens per second, memory of the process tree after the step
prefill   a cold prompt of 512 tokens and one token: prompt tokens per second of TTFT
decode    one request, 128 tokens after a prompt of 128: tokens per second after the first
parallel  8 requests at once, prompts of 256, 64 tokens each: tokens per second from the first
          request sent to the last token, and while all eight were generating
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmark.environment import Environment, describe_file, write_result
from benchmark.serving.sections import SECTIONS, Bench
from benchmark.serving.servers import (
    Server,
    Spec,
    llama_spec,
    llama_version,
    stop_servers_on_term,
    treadle_spec,
)

from treadle.bench.ratios import summarise, table
from treadle.srt.checkpoint import resolve_path

OURS = "treadle"
PACKAGES = ("torch", "numpy")
# Two settings of the peer where they differ in what they keep of window layers; 8 slots of 512.
LLAMA_VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "turns": {
        "llama.cpp": ("-np", "1", "-c", "16384"),
        "llama.cpp swa-full": ("-np", "1", "-c", "16384", "--swa-full"),
    },
    "prefill": {"llama.cpp": ("-np", "1", "-c", "16384")},
    "decode": {"llama.cpp": ("-np", "1", "-c", "16384")},
    "parallel": {"llama.cpp np-8": ("-np", "8", "-c", "4096")},
}


def main() -> None:
    args = _arguments()
    names = args.sections.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        raise SystemExit(f"unknown section {unknown[0]}; there are {', '.join(SECTIONS)}")
    stop_servers_on_term()
    environment = Environment.read(PACKAGES)
    began = time.monotonic()
    bench = Bench(args.rounds, args.seed)
    with ExitStack() as stack:
        running: dict[str, Server] = {}
        for name in names:
            servers = [_ensure(spec, running, stack, bench) for spec in _specs(name, args)]
            print(f"{name}: {', '.join(server.name for server in servers)}", file=sys.stderr)
            SECTIONS[name](bench, servers)
    lines = summarise(bench.samples, OURS)
    print(table(lines))
    result = {
        "environment": environment,
        "model": describe_file(args.model),
        "peer": llama_version(args.llama_server) if args.llama_server else "",
        "threads": args.threads,
        "rounds": args.rounds,
        "servers": {name: str(server.launch) for name, server in running.items()},
        "notes": args.note,
        "seconds": round(time.monotonic() - began),
        "summary": lines,
        "samples": bench.samples,
    }
    if args.out:
        print(f"written: {write_result(args.out, result).name}", file=sys.stderr)


def _ensure(spec: Spec, running: dict[str, Server], stack: ExitStack, bench: Bench) -> Server:
    """The server of this name, started and warmed when it is not up yet."""
    if spec.name not in running:
        server = stack.enter_context(Server(spec))
        server.wait_until_ready()
        bench.warm(server)
        running[spec.name] = server
    return running[spec.name]


def _specs(section: str, args: argparse.Namespace) -> Iterator[Spec]:
    if args.treadle_cmd:
        yield treadle_spec(args.treadle_cmd, args.model, args.threads)
    if args.llama_server:
        for name, flags in LLAMA_VARIANTS[section].items():
            more = (*flags, *args.llama_args.split())
            yield llama_spec(name, args.llama_server, args.model, args.threads, more)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", type=resolve_path, default="demo:gemma3-270m", help="GGUF file for all servers")
    add("--llama-server", type=Path, help="the peer's program; its libraries lie beside it")
    add("--treadle-cmd", default=f"{sys.executable} -m treadle.launch_server")
    add("--llama-args", default="", help="further flags of the peer")
    add("--sections", default=",".join(SECTIONS))
    add("--threads", type=int, default=2)
    add("--rounds", type=int, default=5)
    add("--seed", default="0")
    add("--note", action="append", default=[], help="kept in the result; may be repeated")
    add("--out", default="", help="name of the file in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
