"""The library as built: one list of sources, no OpenMP runtime of its own."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from treadle.kernels.cpu import build, lib
from treadle.kernels.dispatch import KernelUnavailable

ROOT = Path(__file__).parents[2]


def extension() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (found,) = project["tool"]["setuptools"]["ext-modules"]
    return found


def test_installation_compiles_what_the_build_command_compiles():
    folder = ROOT / "kernels/cpu"
    sources, headers = (sorted(folder.glob(pattern)) for pattern in ("*.cpp", "*.h"))
    assert [ROOT / path for path in extension()["sources"]] == sources
    assert [ROOT / path for path in extension()["depends"]] == headers
    assert [path.name for path in build.sources()] == [path.name for path in sources]
    assert extension()["extra-compile-args"] == list(build.COMPILE_FLAGS)
    assert extension()["optional"] is True


def test_library_brings_no_second_openmp_runtime():
    lib.library()
    torch.ones(1 << 20).sum()
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    runtimes = [path for path in mapped if "gomp" in path or "iomp" in path or "libomp" in path]
    assert len(runtimes) == 1


def test_missing_function_is_unavailable_not_a_crash():
    with pytest.raises(KernelUnavailable, match="outdated"):
        lib.function("treadle_of_the_future", ())


def test_failing_compiler_leaves_no_library(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        build.build("false", tmp_path / "library.so")
    with pytest.raises(FileNotFoundError):
        build.build("no-such-compiler", tmp_path / "library.so")
    assert list(tmp_path.iterdir()) == []
