"""The fleet simulator: hit rate, TTFT, balance and moves of 1 to 10,000 replicas.

    python -m benchmark.fleet.simulate --agents agent_sessions.jsonl --replicas 10 100 1000 \\
        --policies session round_robin --out fleet_scale

Runs the router's policies, ledger and life cycle and the runtime's prefix cache as they are; only
the time of a step is computed (`costs.py`). One row for each number of replicas, policy and pool.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

from benchmark.environment import RESULTS, Environment, describe_file, write_result

from treadle.router.policies import NAMES

from .plots import draw
from .rows import Row, table
from .setting import Setting, add_flags, read_costs, read_trace, simulate

KEYED = [name for name in NAMES if name != "manual"]


def settings(args: argparse.Namespace) -> list[Setting]:
    return [
        Setting(replicas, args.sessions or args.sessions_per_replica * replicas, policy, pool)
        for policy in args.policies
        for pool in args.pool_tokens
        for replicas in args.replicas
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument("--replicas", type=int, nargs="+", default=[10])
    parser.add_argument("--sessions-per-replica", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=0, help="of all replicas together")
    parser.add_argument("--policies", nargs="+", default=["session"], choices=KEYED)
    parser.add_argument("--pool-tokens", type=int, nargs="+", default=[3_000_000])
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    parser.add_argument("--against", default="replicas", choices=("replicas", "pool_tokens"))
    args = parser.parse_args()
    environment = Environment.read(("numpy",))
    sessions = read_trace(args)
    gc.disable()  # it would look at millions of nodes again and again, and none is garbage
    rows: list[Row] = []
    for setting in settings(args):
        wall, cpu = time.perf_counter(), time.process_time()
        figures = simulate(sessions, setting, args)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        rows.append(Row(setting, figures, round(wall, 1), round(cpu, 1)))
        print(table(rows[-1:]), flush=True)
    print(table(rows))
    if args.out:
        shown = {name: str(value) for name, value in vars(args).items()}
        shown |= {
            name: describe_file(Path(shown[name])) for name in ("agents", "chats") if shown[name]
        }
        content = {"environment": environment, "settings": shown, "costs": read_costs(args)}
        write_result(args.out, {**content, "rows": rows})
        if len(rows) > 1:
            draw(rows, args.against, RESULTS / f"{args.out}.png")


if __name__ == "__main__":
    main()
