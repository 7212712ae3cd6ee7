"""Cost of planning and committing a decode step, without worker and wire.

    PYTHONPATH=python python benchmark/serving/bench_scheduler.py [--requests 256] [--steps 400]

Prints median and 99th percentile of plan + commit per step, in milliseconds, for a pipeline that
is one step ahead (ids come from the device) and for one that is not.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from array import array

from benchmark.environment import Environment, write_result

from treadle.srt.cache.manager import CacheFacts, CacheManager
from treadle.srt.cache.replay import ReplayRule, ReplayShape
from treadle.srt.config import CacheSection, SchedSection
from treadle.srt.messages import (
    GenerateRequest,
    RequestId,
    SamplingParams,
    StepPlan,
    StepResult,
)
from treadle.srt.model_config import LayerKind
from treadle.srt.sched.scheduler import Scheduler

PAGE_SIZE = 16
PROMPT_TOKENS = 64


def make_scheduler(requests: int, steps: int, *, overlap: bool) -> Scheduler:
    """All requests are admitted and will run for at least `steps` more steps."""
    output = steps + 64
    pages = requests * ((PROMPT_TOKENS + output) // PAGE_SIZE + 2)
    rule = ReplayRule((LayerKind.GLOBAL,), 0, ReplayShape("bounded", 0, 1), PAGE_SIZE)
    facts = CacheFacts(pages + 1, requests + 1, PAGE_SIZE, True, "lru")
    sched = SchedSection(
        max_running=requests, chunk_tokens=8192, conservativeness=0.01, overlap=overlap, seed=1
    )
    scheduler = Scheduler(sched, CacheSection(), CacheManager(facts, rule), 1 << 20)
    sampling = SamplingParams(max_new_tokens=output, seed=1, stop_token_ids=(1, 2))
    for i in range(requests):
        prompt = array("i", range(100 + i, 100 + i + PROMPT_TOKENS))
        scheduler.add(GenerateRequest(RequestId(str(i)), prompt, sampling), 0.0)
    while scheduler.stats()[1]["running"] < requests:
        plan = scheduler.plan(0.0)
        assert plan is not None
        scheduler.commit(answer(plan), 0.0)
    return scheduler


def answer(plan: StepPlan) -> StepResult:
    """What a worker would say: one id per sampled span, none a stop id."""
    sampled = sum(span.sample for span in plan.spans())
    return StepResult(plan.step, array("i", [50]) * sampled)


def measure(scheduler: Scheduler, steps: int, *, ahead: int) -> list[float]:
    """Milliseconds of plan + commit, per step, with `ahead` steps in flight meanwhile."""
    waiting = []
    for _ in range(ahead):
        plan = scheduler.plan(0.0)
        assert plan is not None
        waiting.append(answer(plan))
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        plan = scheduler.plan(0.0)
        planned = time.perf_counter()
        assert plan is not None
        waiting.append(answer(plan))
        result = waiting.pop(0)
        again = time.perf_counter()
        scheduler.commit(result, 0.0)
        times.append((planned - begin + time.perf_counter() - again) * 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    args = parser.parse_args()
    gc.freeze()
    results: dict[str, dict[str, float]] = {}
    for overlap in (True, False):
        scheduler = make_scheduler(args.requests, args.steps, overlap=overlap)
        times = measure(scheduler, args.steps, ahead=int(overlap))
        median, tail = statistics.median(times), statistics.quantiles(times, n=100)[98]
        name = "one step ahead" if overlap else "not ahead"
        print(f"{args.requests} requests, {name}: median {median:.3f} ms, p99 {tail:.3f} ms")
        results[name] = {"median_ms": median, "p99_ms": tail}
    if args.out:
        environment = Environment.read(())
        content = {"environment": environment, "settings": vars(args), "plan_and_commit": results}
        write_result(args.out, content)


if __name__ == "__main__":
    main()
