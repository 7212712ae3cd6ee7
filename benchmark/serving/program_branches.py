"""What a branch of a program costs the client: memory, time per request, threads.

    python -m benchmark.serving.program_branches [--counts 1,100,1000] [--rounds 3]
        [--delay 0.5] [--out program_branches]

Against a server that answers after a fixed time and computes nothing (`slow_completions`), in a
process of its own. Each case runs in a fresh process:

    fork    one plain program that forks into so many branches of three generations each
    batch   so many runs of a coroutine, all at once, of three generations each
    agent   so many agents of two turns, with one call of a coroutine tool between

Latency of a request is what the program saw less the server's time. Memory is the growth of the
process from before the run to its peak, per branch; it includes connections and the trace.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import psutil
from benchmark.environment import ROOT, Environment, write_result

import treadle as tr
from treadle.bench.spread import Spread

PACKAGES = ("aiohttp", "orjson")
GENERATIONS = 3
START_S = 60.0
WATCH_S = 0.02
CASES = ("fork", "batch", "agent")


@dataclass(frozen=True, slots=True)
class Run:
    """`over_*`: of one request's latency over the server's time. `waits`: server's times that a
    branch must sit through one after another; `wall_s` less those is what the client added."""

    branches: int
    wall_s: float
    waits_s: float
    over_p50_ms: float
    over_p99_ms: float
    kib_per_branch: float
    peak_threads: int


class Watch:
    """Peak of memory and threads of this process, looked at from a thread of its own."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.base = self._process.memory_info().rss
        self.peak_bytes, self.peak_threads = self.base, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(WATCH_S):
            self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)
            self.peak_threads = max(self.peak_threads, self._process.num_threads())


@tr.function
def fork(s: tr.State, count: int) -> None:
    s += "The loom: "
    with s.fork(count) as forks:
        for step in range(GENERATIONS):
            forks += lambda i, step=step: f"{i}.{step}" + tr.gen(f"x{step}")
    s["x0"]


@tr.function
async def chain(s: tr.State, number: int) -> None:
    for step in range(GENERATIONS):
        s += f"{number}.{step}" + tr.gen(f"x{step}")
        await s.read(f"x{step}")


async def step(n: int) -> str:
    """Does nothing."""
    return str(n)


@tr.function
async def agent(s: tr.State, number: int) -> None:
    s += tr.user(f"Task {number}") + tr.agent("answer", tools=[step])
    await s.read("answer")


def run_fork(count: int) -> list[tr.State]:
    return [fork.run(count)]


def run_batch(count: int) -> list[tr.State]:
    return list(chain.run_batch([(i,) for i in range(count)], num_threads=count))


def run_agent(count: int) -> list[tr.State]:
    return list(agent.run_batch([(i,) for i in range(count)], num_threads=count))


RUNNERS: dict[str, Callable[[int], list[tr.State]]] = {
    "fork": run_fork,
    "batch": run_batch,
    "agent": run_agent,
}
WAITS = {"fork": GENERATIONS, "batch": GENERATIONS, "agent": 2}


def measure(case: str, count: int, delay_s: float) -> Run:
    """In this process; one branch is run first, so that what is made once is there."""
    RUNNERS[case](1)
    with Watch() as watch:
        began = time.perf_counter()
        states = RUNNERS[case](count)
        wall = time.perf_counter() - began
    errors = [error for state in states if (error := state.error()) is not None]
    if errors:
        raise errors[0]
    entries = [entry for state in states for entry in state.trace().entries]
    over = [
        (entry.end_s - entry.start_s - delay_s) * 1000
        for entry in entries
        if entry.kind == "generate" and entry.end_s is not None
    ]
    cuts = quantiles(over, n=100)
    grown = (watch.peak_bytes - watch.base) / 1024 / count
    waits = WAITS[case] * delay_s
    return Run(
        count, round(wall, 3), round(waits, 3), round(cuts[49], 2), round(cuts[98], 2),
        round(grown, 1), watch.peak_threads - 1,
    )  # fmt: skip


def main() -> None:
    args = _arguments()
    if args.case:
        _child(args)
        return
    environment = Environment.read(PACKAGES)
    results = []
    with _server(args.delay) as url:
        for case in CASES:
            for count in map(int, args.counts.split(",")):
                runs = [_in_child(url, case, count, args.delay) for _ in range(args.rounds)]
                results.append(_summary(case, count, runs))
                print(_line(results[-1]), flush=True)
    if args.out:
        settings = {"delay_s": args.delay, "rounds": args.rounds, "generations": GENERATIONS}
        content = {"environment": environment, "settings": settings, "cases": results}
        print(write_result(args.out, content))


def _child(args: argparse.Namespace) -> None:
    endpoint = tr.RuntimeEndpoint(args.url)
    tr.set_default_backend(endpoint)
    found = measure(args.case, int(args.counts), args.delay)
    endpoint.close()
    print(json.dumps({name: vars_of(found)[name] for name in Run.__slots__}))


def vars_of(run: Run) -> dict[str, float]:
    return {
        "branches": run.branches,
        "wall_s": run.wall_s,
        "waits_s": run.waits_s,
        "over_p50_ms": run.over_p50_ms,
        "over_p99_ms": run.over_p99_ms,
        "kib_per_branch": run.kib_per_branch,
        "peak_threads": run.peak_threads,
    }


def _in_child(url: str, case: str, count: int, delay_s: float) -> Run:
    command = [sys.executable, "-m", "benchmark.serving.program_branches", "--case", case,
               "--counts", str(count), "--delay", str(delay_s), "--url", url]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def _summary(case: str, count: int, runs: Sequence[Run]) -> dict[str, object]:
    columns = {name: Spread.of([vars_of(run)[name] for run in runs]) for name in vars_of(runs[0])}
    columns.pop("branches")
    added = [1000 * (run.wall_s - run.waits_s) / count for run in runs]
    return {"case": case, "branches": count, **columns, "added_ms_per_branch": Spread.of(added)}


def _line(found: dict[str, object]) -> str:
    spreads = {name: value for name, value in found.items() if isinstance(value, Spread)}
    values = "  ".join(f"{name} {spread.median:g}" for name, spread in spreads.items())
    return f"{found['case']:6} {found['branches']:5}  {values}"


@contextmanager
def _server(delay_s: float) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        module = "benchmark.serving.slow_completions"
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(port_file), str(delay_s)],
            cwd=ROOT, env={**os.environ},
        )  # fmt: skip
        try:
            deadline = time.monotonic() + START_S
            while not (port_file.exists() and port_file.read_text()):
                if time.monotonic() > deadline or process.poll() is not None:
                    sys.exit("the fake server did not start")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port_file.read_text()}"
        finally:
            process.terminate()
            process.wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", default="1,100,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds of every answer")
    parser.add_argument("--case", choices=CASES, help="of a child; needs --url")
    parser.add_argument("--url", default="")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
