"""One part of `gpu_suite.py`, in a process whose kernels are those of the device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

import torch
from benchmark.environment import ROOT, Environment, write_result
from benchmark.gpu import kernels, serve, steps, v41_kernels
from benchmark.gpu.measure import ceilings

PACKAGES = ("torch", "triton", "numpy")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "-n", "8")
TESTS = {
    "kernels": ("-k", "triton", "test/kernels"),
    "device": ("-m", "gpu", "test/srt/worker"),
}
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
    counts: dict[str, str] = {}
    failed = False
    for name, more in TESTS.items():
        words = [sys.executable, *PYTEST, *more]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
        lines = [x for x in done.stdout.splitlines() if x.strip()]
        counts[name] = lines[-1] if lines else done.stderr[-300:]
        failed = failed or done.returncode != 0
        print("\n".join(x for x in lines if x.startswith(("FAILED", "ERROR"))))
    return {"tests": counts, "failed": failed}


def _kernels(model: str) -> Content:
    found = ceilings()
    return {"ceilings": found, "kernels": kernels.measure(found)}


def _steps(model: str) -> Content:
    found = ceilings()
    return {"model": model, "ceilings": found, **steps.measure(model, found)}


def _serve(model: str) -> Content:
    return {"model": model, **serve.measure(model)}


def _v41(model: str) -> Content:
    return v41_kernels.measure()


PARTS: dict[str, Callable[[str], Content]] = {
    "tests": _tests,
    "kernels": _kernels,
    "steps": _steps,
    "serve": _serve,
    "v41": _v41,
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
