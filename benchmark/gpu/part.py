"""One part of `gpu_suite.py`, in a process whose kernels are those of the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from benchmark.environment import ROOT, Environment, write_result
from benchmark.gpu import agents, greedy, kernels, serve, steps, timeline, v41_kernels
from benchmark.gpu.measure import ceilings

PACKAGES = ("torch", "triton", "numpy")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
WITHOUT_GGUF = "--ignore=test/kernels/test_gguf_quant.py"  # its package is not on every machine
TESTS = {  # compiling kernels is what takes time, so many processes
    "kernels": ("-n", "14", "-k", "triton", WITHOUT_GGUF, "test/kernels"),
    "device": ("-n", "8", "-m", "gpu", "test/srt/worker"),
}
GOLDEN = {
    "model": ("-n", "8", "test/srt/models/test_deepseek_v41_golden.py"),
    "served": ("-n", "4", "test/e2e/test_v41_golden.py", "test/e2e/test_v41_golden_rules.py"),
}
SANITIZED = ("-n", "0", "-k", "triton", WITHOUT_GGUF, "test/kernels")
Content = dict[str, object]


def run(part: str) -> bool:
    """Measures, writes the result and prints it; whether all is well."""
    kind, _, model = part.partition("-")
    content = PARTS[kind](model)
    environment = asdict(Environment.read(PACKAGES)) | {"gpu": _gpu()}
    write_result(f"gpu_{part}", {"environment": environment, **content})
    _show(content)
    return not content.get("failed")


def _tests(model: str) -> Content:
    return _passed(TESTS)


def _golden(model: str) -> Content:
    """Expected outputs of DeepSeek-V4.1, through the model alone and through a server."""
    return _passed(GOLDEN)


def _passed(runs: Mapping[str, tuple[str, ...]]) -> Content:
    counts: dict[str, str] = {}
    failed = False
    for name, more in runs.items():
        done = _run([sys.executable, *PYTEST, *more])
        lines = [x for x in done.stdout.splitlines() if x.strip()]
        counts[name] = lines[-1] if lines else done.stderr[-300:]
        failed = failed or done.returncode != 0
        print("\n".join(x for x in lines if x.startswith(("FAILED", "ERROR"))))
    return {"tests": counts, "failed": failed}


def _sanitized(tool: str) -> Content:
    """compute-sanitizer over the kernels' tests, each tensor in a block of memory of its own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / tool
        command = ["compute-sanitizer", "--tool", tool, "--log-file", str(log)]
        done = _run([*command, sys.executable, *PYTEST, *SANITIZED])
        found = [x for x in log.read_text().splitlines() if "SUMMARY" in x]
    is_clean = bool(found) and all(re.search(r": 0 (errors|hazards)", x) for x in found)
    return {"sanitizer": found, "failed": not is_clean or done.returncode != 0}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TREADLE_TEST_DEVICE": "cuda"}
    if command[0] == "compute-sanitizer":
        environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ)


def _kernels(model: str) -> Content:
    found = ceilings()
    return {"ceilings": found, "kernels": kernels.measure(found)}


def _steps(model: str) -> Content:
    found = ceilings()
    return {"model": model, "ceilings": found, **steps.measure(model, found)}


def _serve(model: str) -> Content:
    return {"model": model, **serve.measure(model)}


def _agents(model: str) -> Content:
    return {"model": model, **agents.measure(model)}


def _timeline(model: str) -> Content:
    return {"model": model, **timeline.measure(model)}


def _greedy(model: str) -> Content:
    return greedy.measure()


def _v41(model: str) -> Content:
    return v41_kernels.measure()


PARTS: dict[str, Callable[[str], Content]] = {
    "tests": _tests,
    "kernels": _kernels,
    "steps": _steps,
    "serve": _serve,
    "agents": _agents,
    "timeline": _timeline,
    "greedy": _greedy,
    "v41": _v41,
    "golden": _golden,
    "sanitizer": _sanitized,
}


def _gpu() -> str:
    device = torch.cuda.get_device_properties(0)
    return f"{device.name}, {device.total_memory >> 30} GiB, CUDA {torch.version.cuda}"


def _show(content: object, prefix: str = "") -> None:
    """A line for each number."""
    if isinstance(content, dict):
        for key, value in content.items():
            _show(value, f"{prefix} {key}")
    elif isinstance(content, float):
        print(f"{prefix.strip():70} {content:.4g}")
    else:
        print(f"{prefix.strip():70} {content}")


if __name__ == "__main__":
    sys.exit(0 if run(sys.argv[1]) else 1)
