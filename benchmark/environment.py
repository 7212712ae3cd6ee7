"""Where results of benchmarks lie, and what they were measured on.

Nothing in a result names this machine's folders: paths in a command are cut to file names, so
results may be published as they are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from treadle.bench import environment
from treadle.bench.environment import Environment, describe_file

__all__ = ["RESULTS", "ROOT", "Environment", "describe_file", "tracked_files", "write_result"]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmark" / "results"


def tracked_files() -> list[Path]:
    """Files of this repository under version control, in order of their names."""
    run = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in run.stdout.splitlines()]


def write_result(name: str, content: object) -> Path:
    """`benchmark/results/<name>.json`."""
    path = RESULTS / f"{name}.json"
    environment.write_result(path, content)
    return path
