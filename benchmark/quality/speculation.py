"""Greedy output and decode rate with drafts and without: the same prompts asked of two servers.

    python -m benchmark.quality.speculation [--cases 100] [--every K] [--threads 2]
        [--server-args "..."] [--out speculation]

Run from the root of the repository, on a machine that does nothing else. The prompts are those of
the agent cases. Each is asked twice of both servers: cold, and warm, when what came before its
newest turn is cached. So 100 cases are 200 prompts. Outputs must be equal id by id. A rate is that
of all tokens after each first event; a ratio is of two servers that ran at the same time, taking
turns, and accepted drafts are those of the server's own counters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from benchmark.environment import ROOT, Environment, describe_file, write_result
from benchmark.quality.agent_cases import AgentCase, prompt_ids, read_cases
from benchmark.serving.client import Json, exchange, int_list, post, post_stream
from benchmark.serving.servers import Server, stop_servers_on_term, treadle_spec

PACKAGES = ("torch", "numpy")
EVALS = ROOT / "test" / "evals" / "agent_tasks.jsonl"
MODEL = ROOT / "test" / "checkpoints" / "v41-mini"
VARIANTS = {"plain": (), "drafts": ("--speculative-algorithm", "dspark")}
KINDS = ("cold", "warm")


@dataclass(slots=True)
class Decoded:
    """Tokens after first events, and the seconds that they took."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Found:
    """`different`: prompts whose outputs are not equal, as kind and case. Rates in tokens/s;
    `accepted_drafts` is the mean per verified step."""

    prompts: int = 0
    different: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    rate_ratio: float = 0.0
    accepted_drafts: float = 0.0


def main() -> None:
    args = _arguments()
    stop_servers_on_term()
    environment = Environment.read(PACKAGES)
    cases = read_cases(args.evals, args.cases)[:: args.every]
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(_server(args, flags)) for name, flags in VARIANTS.items()
        }
        for server in servers.values():
            server.wait_until_ready()
        found = compare(servers, cases)
    print(f"{found.prompts} prompts, {len(found.different)} with another output")
    print(", ".join(f"{name} {rate:.1f} tokens/s" for name, rate in found.rates.items()))
    print(f"ratio {found.rate_ratio:.2f}, accepted drafts per step {found.accepted_drafts:.2f}")
    if args.out:
        settings = {
            "model": describe_file(args.model),
            "evals": describe_file(args.evals),
            "cases": len(cases),
            "every": args.every,
            "threads": args.threads,
            "variants": VARIANTS,
            "server_args": args.server_args,
        }
        content = {"environment": environment, "settings": settings, "found": found}
        print(write_result(args.out, content))
    if found.different:
        sys.exit(f"outputs differ: {', '.join(found.different)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--evals", type=Path, default=EVALS)
    parser.add_argument("--cases", type=int, default=100, help="the first so many; 0: all")
    parser.add_argument("--every", type=int, default=1, help="of these, each K-th")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--server-args", default="", help="further flags of both servers")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


def _server(args: argparse.Namespace, flags: Sequence[str]) -> Server:
    command = f"{sys.executable} -m treadle.launch_server"
    more = ("--kv-cache-memory", "256M", *flags, *args.server_args.split())
    return Server(treadle_spec(command, args.model, args.threads, more))


def compare(servers: dict[str, Server], cases: Sequence[AgentCase]) -> Found:
    """Variants take turns to be first."""
    found = Found()
    decoded = {name: Decoded() for name in servers}
    for index, case in enumerate(cases):
        for kind in KINDS:
            outputs = {}
            for name in list(servers)[:: 1 if index % 2 == 0 else -1]:
                outputs[name] = _ask(servers[name].port, case, kind, decoded[name])
            found.prompts += 1
            if len({tuple(ids) for ids in outputs.values()}) > 1:
                found.different.append(f"{kind}/{case.id}")
    found.rates = {name: round(x.rate, 2) for name, x in decoded.items()}
    found.rate_ratio = round(decoded["drafts"].rate / decoded["plain"].rate, 3)
    found.accepted_drafts = round(_accept_length(servers["drafts"].port) - 1.0, 3)
    return found


def _ask(port: int, case: AgentCase, kind: str, decoded: Decoded) -> list[int]:
    """Output ids of a greedy turn in a cache scope of its own; its rate goes to `decoded`."""
    prompt = prompt_ids(port, case)
    scope: Json = {"cache_salt": f"{kind} {case.id}"}
    if kind == "warm":
        sampling: Json = {"max_new_tokens": 0}
        prefix = {"input_ids": prompt[: case.hit_tokens], "sampling_params": sampling}
        post(port, "/generate", prefix | scope)
    sampling = {"max_new_tokens": case.body["max_tokens"], "temperature": 0}
    body = {"input_ids": prompt, "sampling_params": sampling, "stream": True, **scope}
    events = post_stream(port, "/generate", body)
    ids = int_list(events[-1].data["output_ids"])
    decoded.tokens += len(ids) - len(int_list(events[0].data["output_ids"]))
    decoded.seconds += events[-1].at_s - events[0].at_s
    return ids


def _accept_length(port: int) -> float:
    info: Any = orjson.loads(exchange(port, "GET", "/server_info")[1])
    return float(info["internal_states"][0]["avg_spec_accept_length"])


if __name__ == "__main__":
    main()
