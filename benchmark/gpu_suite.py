"""Everything that is measured on one GPU, in parts: `python -m benchmark.gpu_suite`.

    tests       Triton kernels against their references, graphs and the device's runner, by pytest
    golden      expected outputs of DeepSeek-V4.1, through the model and through a server
    sanitizer-T compute-sanitizer's tool T over the kernels' tests
    kernels     times of the kernels, against the measured ceilings
    v41         the same of DeepSeek-V4.1's, at the released layer shapes
    steps-M     a model of M's shapes with random weights in this process: decode and prefill
    serve-M     the same through the real server
    timeline-M  what the server's processes cost a decode step, and whether the device hides it
    agents-M    64 agent sessions of a trace in a closed loop, with the prefix cache and without;
                BENCH_AGENTS names the trace's file
    greedy      answers of Gemma 3 270M against the CPU's; BENCH_GGUF names the model's file

Each part is a process of its own and writes `results/gpu_<part>.json`. A part whose result is of
this commit already is not run again unless `--force` is given; `--parts` names some.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

import orjson
from benchmark.environment import RESULTS, ROOT, Environment

MODELS = ("gemma3-4b", "llama3-8b")
CHECKS = ("tests", "golden", "sanitizer-memcheck", "sanitizer-racecheck")
SERVED = ("timeline-gemma3-4b", "agents-gemma3-4b", "greedy")
SPEEDS = ("kernels", "v41", *(f"{x}-{m}" for m in MODELS for x in ("steps", "serve")))
PARTS = (*CHECKS, *SPEEDS, *SERVED)
PACKAGES = ("torch", "triton", "numpy")
LIMIT_S = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, metavar="PART")
    parser.add_argument("--force", action="store_true", help="also parts that are done")
    options = parser.parse_args()
    failed = 0
    for part in options.parts:
        if _is_done(part) and not options.force:
            print(f"{part}: done already")
            continue
        failed += _run(part)
    return 1 if failed else 0


def _run(part: str) -> bool:
    """Whether the part failed."""
    began = time.monotonic()
    environ = {**os.environ, "TREADLE_KERNELS": "triton"}
    command = [sys.executable, "-m", "benchmark.gpu.part", part]
    # a group of its own, so that nothing of a part is left beside the next one's times
    process = subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True)
    try:
        status = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    print(f"{part}: {'failed' if status else 'ok'} after {time.monotonic() - began:.0f} s")
    return status != 0


def _is_done(part: str) -> bool:
    path = RESULTS / f"gpu_{part}.json"
    if not path.exists():
        return False
    made: dict[str, object] = orjson.loads(path.read_bytes())
    environment = made["environment"]
    assert isinstance(environment, dict)
    is_same = environment["commit"] == Environment.read(PACKAGES).commit
    return is_same and not made.get("failed")


if __name__ == "__main__":
    sys.exit(main())
