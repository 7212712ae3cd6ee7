"""Accuracy on agent tasks with and without the approximations of DeepSeek-V4.1.

    python -m benchmark.quality.agent_tasks [--evals FILE.jsonl] [--cases N] [--concurrency 16]
        [--modes exact,replay,trim,both] [--threads 2] [--out agent_tasks]

Run from the root of the repository. A server is started per mode, and all cases are asked of it
greedily, `--concurrency` at a time:

    exact   cold, all layers run all rows of the prompt
    replay  the case's prefix is cached; after the hit one window is run again
    trim    cold, decoder layers run the last window of the prompt only
    both    a hit with its replay, and a trimmed decoder: what is served by default

Nothing is timed but the whole. Windows of ended requests are not kept, so every hit replays.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmark.environment import ROOT, Environment, describe_file, write_result
from benchmark.quality.accuracy import Accuracy
from benchmark.quality.agent_cases import AgentCase, Outcome, ask, read_cases
from benchmark.serving.servers import Server, stop_servers_on_term, treadle_spec

PACKAGES = ("torch", "numpy")
EVALS = ROOT / "test" / "evals" / "agent_tasks.jsonl"
MODEL = ROOT / "test" / "checkpoints" / "v41-mini"
PAGE = 16
WINDOW = 128
CACHE_BYTES = "512M"


@dataclass(frozen=True, slots=True)
class Mode:
    flags: tuple[str, ...]
    is_primed: bool = False


MODES = {
    "exact": Mode(("--swa-replay-mode", "exact")),
    "replay": Mode(("--no-enable-decoder-swa-bounded-replay",), is_primed=True),
    "trim": Mode(("--enable-decoder-swa-bounded-replay", "--disable-radix-cache")),
    "both": Mode(("--enable-decoder-swa-bounded-replay",), is_primed=True),
}


@dataclass(frozen=True, slots=True)
class Summary:
    """`standard_error` of the accuracy over cases. `hits_allowed`: cases whose prefix is longer
    than what a replay runs again; of them `hits_taken` had cached tokens."""

    mode: str
    cases: int
    passed: int
    accuracy: float
    standard_error: float
    hits_allowed: int
    hits_taken: int
    cached_tokens: int
    replayed_tokens: int
    prompt_tokens: int
    elapsed_s: float
    kinds: dict[str, str]
    failed: list[str]


def main() -> None:
    args = _arguments()
    stop_servers_on_term()
    environment = Environment.read(PACKAGES)
    cases = read_cases(args.evals, args.cases)
    names = args.modes.split(",")
    if unknown := set(names) - set(MODES):
        sys.exit(f"--modes {', '.join(sorted(unknown))}: must be of {', '.join(MODES)}")
    summaries = [_run(args, name, cases) for name in names]
    if args.out:
        settings = {
            "model": describe_file(args.model),
            "evals": describe_file(args.evals),
            "cases": len(cases),
            "concurrency": args.concurrency,
            "threads": args.threads,
            "page_size": PAGE,
            "modes": {name: MODES[name].flags for name in names},
        }
        content = {"environment": environment, "settings": settings, "modes": summaries}
        print(write_result(args.out, content))
    missed = [x.mode for x in summaries if x.hits_taken < x.hits_allowed]
    if missed:
        sys.exit(f"hits were not taken in: {', '.join(missed)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--evals", type=Path, default=EVALS)
    parser.add_argument("--cases", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--server-args", default="", help="further flags of the servers")
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


def _run(args: argparse.Namespace, name: str, cases: Sequence[AgentCase]) -> Summary:
    mode = MODES[name]
    flags = (
        *("--page-size", str(PAGE), "--max-warm-windows", "0", "--kv-cache-memory", CACHE_BYTES),
        *("--max-running-requests", str(args.concurrency), *mode.flags, *args.server_args.split()),
    )
    command = f"{sys.executable} -m treadle.launch_server"
    with Server(treadle_spec(command, args.model, args.threads, flags)) as server:
        server.wait_until_ready()
        began = time.perf_counter()
        with ThreadPoolExecutor(args.concurrency) as threads:
            turn = partial(ask, server.port, is_primed=mode.is_primed)
            outcomes = list(threads.map(turn, cases))
        elapsed = time.perf_counter() - began
    summary = summarise(name, outcomes, cases, elapsed)
    print(line(summary), flush=True)
    return summary


def summarise(
    mode: str, outcomes: Sequence[Outcome], cases: Sequence[AgentCase], elapsed_s: float
) -> Summary:
    accuracy = Accuracy.of([x.passed for x in outcomes])
    hits = [x for x, case in zip(outcomes, cases, strict=True) if allows_hit(case)]
    is_primed = MODES[mode].is_primed
    total, good = Counter(x.kind for x in outcomes), Counter(x.kind for x in outcomes if x.passed)
    return Summary(
        mode=mode,
        cases=accuracy.cases,
        passed=accuracy.passed,
        accuracy=round(accuracy.share, 4),
        standard_error=round(accuracy.standard_error, 4),
        hits_allowed=len(hits) if is_primed else 0,
        hits_taken=sum(x.cached > 0 for x in hits),
        cached_tokens=sum(x.cached for x in outcomes),
        replayed_tokens=sum(x.replayed for x in outcomes),
        prompt_tokens=sum(x.prompt_tokens for x in outcomes),
        elapsed_s=round(elapsed_s, 1),
        kinds={kind: f"{good[kind]}/{total[kind]}" for kind in sorted(total)},
        failed=[x.case for x in outcomes if not x.passed],
    )


def allows_hit(case: AgentCase) -> bool:
    """B1, B2: in whole pages, and longer than a replay by at least a page."""
    return case.hit_tokens // PAGE * PAGE >= WINDOW + PAGE


def line(found: Summary) -> str:
    accuracy = f"{found.accuracy:6.1%} (standard error {found.standard_error:.1%})"
    hits = f"hits {found.hits_taken} of {found.hits_allowed}"
    share = found.cached_tokens / found.prompt_tokens
    kinds = " ".join(f"{kind} {value}" for kind, value in found.kinds.items())
    return (
        f"{found.mode:7} {found.passed}/{found.cases} {accuracy}  {hits}, "
        f"{share:.0%} of tokens cached, {found.elapsed_s:.0f} s  {kinds}"
    )


if __name__ == "__main__":
    main()
