"""`python -m treadle.bench compare --ours SERVER --theirs SERVER ...`: one load, servers in turns.

Runs A B A B ...: in each round every server gets the same requests, one server after the other, and
ratios are of one round, so what changes with time changes both. Shown is the median over rounds
with the extremes. Each round has texts of its own: nothing is cached from the one before. Exit
status 1 where a request failed: that round of that server is not compared.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import agent, agent_flags, rig, serving_flags, serving_run
from .asks import Json
from .environment import Environment, write_result
from .flag_values import DEFAULT, positive
from .ratios import Line, Sample, summarise, whole_table
from .rig import Room, Served
from .serving_result import sglang_line

PROGRAM = "python -m treadle.bench compare"
WORKLOADS = {
    "serving": "a dataset, as `bench serving`",
    "agent": "agent sessions of a trace, as `bench agent`",
}
ROUNDS = 5
METRICS = (
    "median_ttft_ms", "p90_ttft_ms", "median_itl_ms", "p90_itl_ms", "median_tpot_ms",
    "median_e2e_latency_ms", "p90_e2e_latency_ms", "request_throughput", "output_throughput",
    "total_throughput",
)  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Exit status. Raises Unready, ValueError, OSError for what the user can mend."""
    args = parse(argv)
    measure = _agent if args.workload == "agent" else _serving
    lines, is_valid = measure(args, [args.ours, *args.theirs])
    sys.stdout.write(whole_table(lines) + "\n")
    return 0 if is_valid else 1


def parse(argv: Sequence[str]) -> Namespace:
    """Which flags there are depends on the workload."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    texts = "; ".join(f"{name}: {text}" for name, text in WORKLOADS.items())
    first.add_argument("--workload", choices=list(WORKLOADS), default="serving", help=texts)
    workload = first.parse_known_args(argv)[0].workload
    found = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Put the same load on servers in turns: " + rig.KINDS,
        epilog=rig.__doc__,
        parents=[first],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--ours", required=True, metavar="SERVER")
    found.add_argument("--theirs", required=True, nargs="+", metavar="SERVER")
    if workload == "agent":
        agent_flags.add_workload(found, rounds=ROUNDS)
    else:
        found.add_argument("--rounds", type=positive, default=ROUNDS, help=DEFAULT)
        serving_flags.add_workload(found)
    rig.add_flags(found)
    rig.add_output(found)
    return found.parse_args(argv)


def _agent(args: Namespace, wanted: Sequence[str]) -> tuple[list[Line], bool]:
    bench = agent.run(args, wanted)
    return bench.compared(), bench.is_valid


@dataclass(slots=True)
class Rounds:
    """`runs`: result lines of `bench serving`, with server and round."""

    facts: Json
    samples: list[Sample] = field(default_factory=list)
    runs: list[Json] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(int(run["failed"]) for run in self.runs)


def _serving(args: Namespace, wanted: Sequence[str]) -> tuple[list[Line], bool]:
    environment, stem = Environment.read(agent.PACKAGES), rig.result_stem(args)
    with rig.started(wanted, args, Room(args.max_concurrency or 0, 0)) as servers:
        found = Rounds(rig.facts(servers, args))
        for number in range(args.rounds):
            for server in servers:
                sys.stderr.write(f"{server.name}: round {number}\n")
                _round(args, server, number, found)
        lines = summarise(found.samples, servers[0].name)
    if stem:
        result = {"environment": environment, "kind": "compare", **found.facts}
        result |= {"rounds": args.rounds, "failed": found.failed, "notes": args.note}
        path = stem.with_name(f"{stem.name}.json")
        write_result(path, result | {"summary": lines, "runs": found.runs})
    return lines, not found.failed


def _round(args: Namespace, server: Served, number: int, found: Rounds) -> None:
    at = {"base_url": server.url, "backend": server.backend or None, "seed": args.seed + number}
    asked = serving_flags.completed(args, at)
    run = sglang_line(asked, asyncio.run(serving_run.run(asked)))
    del run["server_info"]  # the server's whole configuration; how it was started is in the facts
    found.runs.append({"server": server.name, "round": number} | run)
    if run["failed"]:
        return
    values = {name: float(run[name]) for name in METRICS}
    if memory := server.memory():
        values |= {"rss_mib": memory.rss, "pss_mib": memory.pss}
    step = f"{run['max_concurrency'] or 'all'} at once"
    found.samples.append(Sample(str(run["dataset_name"]), step, server.name, number, values))
