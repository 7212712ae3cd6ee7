"""The flags of a simulation in real tokens, and what they make in tokens of the scaled trace.

Everything that is a number of tokens is multiplied by the length scale: prompts, pages, the window,
the chunk, the pool. A page of 256 tokens at scale 1/64 is four ids, so that the tree compares few
bytes, and a row of the scaled trace costs what 64 rows cost.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import orjson

from treadle.bench.traces import Session, read_agents, read_chats, whole
from treadle.router.policies import PolicyRules
from treadle.srt.cache.manager import CacheFacts
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.model_config import LayerKind

from .clients import Clients, Pace
from .costs import Costs, fitted
from .replica import Shape
from .simulation import Plan, Simulation
from .tally import Figures


@dataclass(frozen=True, slots=True)
class Setting:
    """`pool_tokens`: of each replica. Lengths in real tokens, times in seconds."""

    replicas: int
    sessions: int
    policy: str
    pool_tokens: int


def add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("trace")
    group.add_argument("--agents", default="", help="agent_sessions.jsonl")
    group.add_argument("--chats", default="", help="mooncake_conversation.jsonl")
    group.add_argument("--turns", type=int, default=16, help="first turns of a session; 0: all")
    group.add_argument("--length-scale", type=Fraction, default=Fraction(1, 64))
    group.add_argument("--time-scale", type=float, default=1.0)
    group.add_argument("--max-gap-s", type=float, default=math.inf, help="between turns")
    group.add_argument("--arrival-s", type=float, default=600.0, help="sessions begin within")
    group.add_argument("--seconds", type=float, default=1200.0, help="simulated; 0: to the end")
    group.add_argument("--seed", type=int, default=0)
    group = parser.add_argument_group("replica")
    group.add_argument("--page-size", type=int, default=256)
    group.add_argument("--window", type=int, default=128)
    group.add_argument("--window-layers", type=int, default=4)
    group.add_argument("--chunk", type=int, default=8192)
    group.add_argument("--max-running", type=int, default=64)
    group.add_argument("--warm-windows", type=int, default=0)
    group.add_argument("--costs", default="", help="a result of agent_turns to fit them to")
    group.add_argument("--base-ms", type=float, default=15.0, help="of a step")
    group.add_argument("--row-us", type=float, default=25.0, help="of a row of a prompt")
    group.add_argument("--decode-us", type=float, default=150.0, help="of a decoding request")
    group = parser.add_argument_group("router")
    group.add_argument("--kill-share", type=float, default=0.01)
    group.add_argument("--kill-at-s", type=float, default=600.0)


def read_trace(args: argparse.Namespace) -> list[Session]:
    """Raises SystemExit unless one trace is named."""
    if bool(args.agents) == bool(args.chats):
        raise SystemExit("--agents or --chats: one of them")
    scale = float(args.length_scale)
    if args.chats:
        return read_chats(Path(args.chats), scale)
    return read_agents(Path(args.agents), scale, args.turns, args.max_gap_s)


def read_costs(args: argparse.Namespace) -> Costs:
    if args.costs:
        return fitted(orjson.loads(Path(args.costs).read_bytes())["summary"])
    return Costs(args.base_ms / 1e3, args.row_us / 1e6, args.decode_us / 1e6)


def make_shape(args: argparse.Namespace, pool_tokens: int) -> Shape:
    """Raises ValueError for lengths that the scale does not leave whole."""
    scale = float(args.length_scale)
    page = whole(args.page_size * scale)
    window = whole(args.window * scale) if args.window_layers else 0
    kinds = (LayerKind.GLOBAL, *[LayerKind.WINDOW] * args.window_layers)
    rule = ReplayRule(kinds, window, ReplayShape("bounded", 0, 1), page)
    warm = args.warm_windows
    facts = CacheFacts(
        num_pages=1 + pool_tokens // args.page_size,
        num_slots=1 + args.max_running + warm,
        page_size=page,
        prefix_cache=True,
        eviction_policy="lru",
        num_warm=warm,
        ring_rows=window + 2 * page,
    )
    return Shape(facts, rule, whole(args.chunk * scale), 1 / scale, read_costs(args))


def simulate(sessions: list[Session], setting: Setting, args: argparse.Namespace) -> Figures:
    names = [f"http://replica-{number}:30000" for number in range(setting.replicas)]
    shape = make_shape(args, setting.pool_tokens)
    policy = PolicyRules(name=setting.policy)
    until_s = args.seconds or math.inf
    plan = Plan(names, shape, policy, args.seed, args.kill_share, args.kill_at_s, until_s=until_s)
    pace = Pace(args.time_scale, args.arrival_s, args.seed)
    return Simulation(Clients(sessions, setting.sessions, pace), plan).run()
