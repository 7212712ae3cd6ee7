"""Cost of the prefix cache for one long prompt: admit (match), grow, publish, release, in ms.

    python benchmark/serving/bench_cache.py [--tokens 100000] [--page-size 16] [--runs 30]

"cold": nothing is in the tree. "warm": all but the last page is. "parted": the tree has another
prompt that parts in the middle of this one, so a long node is searched and split. "busy": 128
waiting requests of the same length are probed. Budget: match + publish under 5 ms together.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from array import array

from benchmark.environment import Environment, write_result

from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.model_config import LayerKind

PHASES = ("match", "grow", "publish", "release")


def turn(manager: CacheManager, tokens: array[int]) -> list[float]:
    """One request over `tokens`; seconds per phase."""
    size = manager.facts.page_size
    times = [time.perf_counter()]
    shape = manager.rule.default
    got = manager.admit((), tokens, len(tokens) - 1, shape, -(-len(tokens) // size))
    times.append(time.perf_counter())
    if got is None or manager.grow(got.lease, len(tokens)) is None:
        raise SystemExit("the pool is too small")
    times.append(time.perf_counter())
    manager.publish(got.lease, tokens, len(tokens), None, is_final=True)
    times.append(time.perf_counter())
    manager.release(got.lease, None)
    times.append(time.perf_counter())
    return [after - before for before, after in zip(times, times[1:], strict=False)]


def measure(tokens: array[int], page_size: int, runs: int) -> dict[str, dict[str, float]]:
    """Median milliseconds per case and phase."""
    rule = ReplayRule((LayerKind.GLOBAL,), 0, ReplayShape("bounded", 0, 1), page_size)
    facts = CacheFacts(4 * len(tokens) // page_size, 4, page_size, True, "lru")
    manager = CacheManager(facts, rule)
    middle = len(tokens) // 2
    other = tokens[:middle] + array("i", [token + 1 for token in tokens[middle:]])
    cases: dict[str, list[list[float]]] = {"cold": [], "warm": [], "parted": []}
    probes = []
    for _ in range(runs):
        manager.flush()
        cases["cold"].append(turn(manager, tokens))
        cases["warm"].append(turn(manager, tokens))
        start = time.perf_counter()
        for _ in range(128):
            manager.probe((), tokens, len(tokens) - 1, rule.default)
        probes.append(time.perf_counter() - start)
        manager.flush()
        turn(manager, other)
        cases["parted"].append(turn(manager, tokens))
    report = {
        case: dict(zip(PHASES, (_median_ms(list(t)) for t in zip(*rows, strict=True)), strict=True))
        for case, rows in cases.items()
    }
    return report | {"busy": {"probe_128": _median_ms(probes)}}


def _median_ms(seconds: list[float]) -> float:
    return round(1e3 * statistics.median(seconds), 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    args = parser.parse_args()
    source = random.Random(0)
    tokens = array("i", [source.randrange(50_000) for _ in range(args.tokens)])
    report = measure(tokens, args.page_size, args.runs)
    for case, phases in report.items():
        print(case, json.dumps(phases))
    worst = max(phases["match"] + phases["publish"] for phases in list(report.values())[:3])
    print(f"match+publish of {args.tokens} tokens, worst case: {worst:.3f} ms")
    if args.out:
        environment = Environment.read(())
        content = {"environment": environment, "settings": vars(args), "median_ms": report}
        write_result(args.out, content)


if __name__ == "__main__":
    main()
