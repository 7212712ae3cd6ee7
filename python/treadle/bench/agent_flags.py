"""Flags of `bench agent`, and of `bench compare` on the same workload."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import rig
from .flag_values import DEFAULT, count, not_negative, positive, scale, share, utf8


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m treadle.bench agent",
        description="Play recorded agent sessions against one or more servers, in turns.",
        epilog=rig.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--server", nargs="+", required=True, help=rig.KINDS)
    add_workload(found, rounds=1)
    rig.add_flags(found)
    rig.add_output(found)
    return found


def add_workload(found: argparse.ArgumentParser, *, rounds: int) -> None:
    """`rounds`: the default."""
    _add_sessions(found.add_argument_group("sessions"))
    add = found.add_argument_group("load").add_argument
    add("--concurrency", nargs="+", type=positive, default=[1, 2, 4],
        help="sessions at once; default: 1 2 4")  # fmt: skip
    add("--sessions", type=count, default=8,
        help="per point; 0: until --seconds are over; " + DEFAULT)  # fmt: skip
    add("--seconds", type=not_negative, default=0.0, help="no turn begins later; 0: no limit")
    add("--rounds", type=positive, default=rounds,
        help="of each point, servers in turns; " + DEFAULT)  # fmt: skip
    add("--seed", type=int, default=42)
    add(
        "--run-id",
        type=utf8,
        default="",
        help="part of every text; default: random, so nothing is cached",
    )
    add("--devices", type=positive, default=1, help="throughput is per device")
    add("--ready-check-timeout-sec", type=not_negative, default=60.0)
    add("--no-plots", action="store_true", help="with --out; they need the extra `bench`")


def _add_sessions(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--traces", type=Path, required=True, help="a file like agent_sessions.jsonl")
    add("--length-scale", type=scale, default=1.0,
        help="factor of all lengths, such as 1/16; " + DEFAULT)  # fmt: skip
    add("--time-scale", type=not_negative, default=1.0, help="factor of recorded think times")
    add("--think", choices=["recorded", "none"], default="recorded",
        help="from an answer to the next request: as between the two requests")  # fmt: skip
    add("--max-think-s", type=not_negative, default=300.0, help="after scaling")
    add("--max-turns", type=count, default=0, help="of a session; 0: all")
    add("--context-len", type=count, default=0, help="leave out longer sessions; 0: none")
    add("--start", nargs=2, type=share, default=[0.0, 0.0], metavar=("LOW", "HIGH"),
        help="sessions begin between these shares of their turns")  # fmt: skip
    add("--replies", choices=["live", "recorded"], default="live",
        help="earlier outputs in prompts: the server's own, or others of their length")  # fmt: skip
