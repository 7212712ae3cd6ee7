"""`python -m treadle.bench agent`: agent sessions of a trace, several at once, on several servers.

Servers take turns at every point (a number of sessions at once) and round; none is loaded while
another is measured. Writes a result, a line for every turn and the plots; the exit status is 1
where a point is not valid.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import aiohttp
import orjson

from . import agent_flags, agent_table, ratios, rig
from .agent_figures import Point, Run, point, row
from .agent_play import Choice, Pace, Part, Player, choose
from .asks import Json, Options
from .control import Unready
from .environment import Environment, describe_file, write_result
from .progress import Progress
from .reach import open_http
from .rig import Found, Room
from .sender import Sender
from .traces import read_agents

PACKAGES = ("torch", "numpy", "aiohttp")
WARM_TOKENS, WARM_OUTPUT = 200, 8


def main(argv: Sequence[str]) -> int:
    """Exit status. Raises Unready, ValueError, OSError for what the user can mend."""
    args = agent_flags.parser().parse_args(argv)
    measured = run(args, args.server)
    sys.stdout.write(agent_table.table(measured.rows()))
    return 0 if measured.is_valid else 1


@dataclass(slots=True)
class Bench:
    """What was measured. `facts`: of the servers."""

    run_id: str
    facts: Json
    parts: Sequence[Part]
    points: list[Point] = field(default_factory=list)
    turns: list[Json] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        return all(found.is_valid for found in self.points)

    def rows(self) -> list[Json]:
        return [found.as_row() for found in self.points]

    def compared(self) -> list[ratios.Line]:
        """The first server with the others."""
        samples = [
            ratios.Sample("agent", f"{p.concurrency} at once", p.server, p.round, p.values())
            for p in self.points
            if p.is_valid
        ]
        return ratios.summarise(samples, self.points[0].server)


def run(args: argparse.Namespace, wanted: Sequence[str]) -> Bench:
    """Measures and writes; the first of `wanted` is compared with the others. Raises Unready,
    ValueError, OSError."""
    if not args.sessions and not args.seconds:
        raise ValueError("--sessions 0 needs --seconds")
    draws = bool(args.out) and not args.no_plots
    if draws and find_spec("matplotlib") is None:
        raise Unready("plots need matplotlib: pip install 'treadle[bench]', or give --no-plots")
    environment, stem = Environment.read(PACKAGES), rig.result_stem(args)
    bench = asyncio.run(_measured(args, wanted))
    if stem:
        _write(stem, {"environment": environment} | _result(args, bench), bench)
    if draws:
        plots = import_module(".agent_plots", __package__)  # no plots, no matplotlib
        title = f"agent sessions, lengths x {args.length_scale:g}, think {args.think}"
        plots.save(plots.draw(bench.points, title), args.results / args.out)
    return bench


async def _measured(args: argparse.Namespace, wanted: Sequence[str]) -> Bench:
    parts = choose(read_agents(args.traces, args.length_scale), _choice(args))
    run_id = args.run_id or secrets.token_hex(6)
    with rig.started(wanted, args, Room(max(args.concurrency), args.context_len)) as served:
        bench = Bench(run_id, rig.facts(served, args), parts)
        async with open_http({}) as http:
            timeout_s, wants_ids = args.ready_check_timeout_sec, args.replies == "live"
            found = [await rig.meet(http, one, timeout_s, wants_ids=wants_ids) for one in served]
            for one in found:
                text = one.words.text(random.Random("warm-up"), WARM_TOKENS)
                sender = Sender(http, one.target, Options(one.target.model))
                await sender.warm_up(text, WARM_TOKENS, WARM_OUTPUT)
            for concurrency in args.concurrency:
                for number in range(args.rounds):
                    for one in found:
                        await _point(args, http, one, bench, (concurrency, number))
    return bench


async def _point(
    args: argparse.Namespace,
    http: aiohttp.ClientSession,
    found: Found,
    bench: Bench,
    at: tuple[int, int],
) -> None:
    """`at`: concurrency, round. Both are in the texts, the server is not: all get the same."""
    concurrency, number = at
    target, run = found.target, f"{bench.run_id}/{concurrency}/{number}"
    player = Player(bench.parts, found.words, run, is_live=args.replies == "live")
    total = sum(len(bench.parts[n % len(bench.parts)].turns) for n in range(args.sessions))
    sys.stderr.write(f"{target.name}: {concurrency} at once, round {number}\n")
    with Progress(total, is_shown=not args.disable_tqdm, prints_answers=False) as bar:
        sender = Sender(http, target, Options(target.model))
        samples = await player.play(sender, _pace(args, concurrency), bar)
        seconds = sender.now_s()
    memory = found.served.memory()
    measured = Run(target.name, concurrency, number, seconds, args.devices, memory)
    bench.points.append(point(samples, measured))
    bench.turns += [row(sample, measured) for sample in samples]


def _choice(args: argparse.Namespace) -> Choice:
    return Choice(args.max_turns, args.context_len, args.start[0], args.start[1], args.seed)


def _pace(args: argparse.Namespace, concurrency: int) -> Pace:
    scale = args.time_scale if args.think == "recorded" else 0.0
    return Pace(concurrency, args.sessions, args.seconds, scale, args.max_think_s)


def _result(args: argparse.Namespace, bench: Bench) -> Json:
    return {
        "kind": "agent",
        **bench.facts,
        "threads": args.threads,
        "traces": describe_file(args.traces),
        "scales": {"length": args.length_scale, "time": args.time_scale, "think": args.think},
        "replies": args.replies,
        "max_turns": args.max_turns,
        "context_len": args.context_len,
        "rounds": args.rounds,
        "run_id": bench.run_id,
        "sessions_that_fit": len(bench.parts),
        "notes": args.note,
        "is_valid": bench.is_valid,
        "points": bench.rows(),
        "summary": bench.compared(),
    }


def _write(stem: Path, result: Json, bench: Bench) -> None:
    write_result(stem.with_name(f"{stem.name}.json"), result)
    turns = b"".join(orjson.dumps(turn) + b"\n" for turn in bench.turns)
    stem.with_name(f"{stem.name}_turns.jsonl").write_bytes(turns)
    sys.stderr.write(f"written: {stem}.json and {stem.name}_turns.jsonl\n")
