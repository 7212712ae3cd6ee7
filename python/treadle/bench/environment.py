"""What a result was measured on: command, commit, machine, versions, load.

Nothing here names this machine's folders: paths in a command are cut to file names, so results
may be published as they are.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import orjson
import psutil

from .. import __version__

ROOT = Path(__file__).resolve().parents[3]  # of the checkout; of nothing where it is installed
CPU_FLAGS = (
    "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8",
    "amx_bf16",
)  # fmt: skip
VARIABLES = (
    "TREADLE_KERNELS",
    "TREADLE_CPU_ISA",
    "OMP_WAIT_POLICY",
)  # change the arithmetic's speed
_NUMBERS = re.compile(rb"\[\n[-+.0-9eE,\s]+\]")


@dataclass(frozen=True, slots=True)
class Environment:
    """`load` is the 1-minute load average when the run began."""

    command: str
    commit: str
    date: str
    cpu: str
    num_cpus: int
    cpu_flags: tuple[str, ...]
    memory_gib: float
    versions: dict[str, str]
    variables: dict[str, str]
    load: float

    @classmethod
    def read(cls, packages: Sequence[str]) -> Environment:
        info = _cpu_info()
        flags = set(info.get("flags", "").split())
        return cls(
            command=" ".join(["python", "-m", _module(), *map(_without_folder, sys.argv[1:])]),
            commit=_commit(),
            date=time.strftime("%Y-%m-%d"),
            cpu=info.get("model name", platform.processor()),
            num_cpus=len(os.sched_getaffinity(0)),
            cpu_flags=tuple(flag for flag in CPU_FLAGS if flag in flags),
            memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
            versions={"python": platform.python_version()}
            | {name: metadata.version(name) for name in packages},
            variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
            load=round(os.getloadavg()[0], 2),
        )


def describe_file(path: Path) -> str:
    """Name, size and hash of a model file, or of the files of a folder in order of their names."""
    digest, size = hashlib.sha256(), 0
    for part in sorted(path.iterdir()) if path.is_dir() else [path]:
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    return f"{path.name}, {size} bytes, sha256 {digest.hexdigest()[:16]}"


def write_result(path: Path, content: object) -> None:
    """Indented, but a list of numbers on one line: some have thousands."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    text = orjson.dumps(content, option=options)
    path.write_bytes(_NUMBERS.sub(lambda found: b" ".join(found[0].split()), text))


def prepare(path: Path) -> None:
    """What is wrong with a result's place shall be told before the run. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    was_there = path.exists()
    path.open("ab").close()
    if not was_there:
        path.unlink()


def append_line(path: Path, content: object) -> None:
    with path.open("ab") as file:
        file.write(orjson.dumps(content) + b"\n")


def _module() -> str:
    path = Path(sys.argv[0]).resolve()
    inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(path.name)
    parts = [part for part in inside.with_suffix("").parts if part not in ("python", "__main__")]
    return ".".join(parts)


def _without_folder(argument: str) -> str:
    """A path becomes its last part; the words of an argument with spaces are cut one by one."""
    words = [Path(word).name if word.startswith(("/", "~")) else word for word in argument.split()]
    text = " ".join(words)
    return f'"{text}"' if " " in text else text


def _commit() -> str:
    """The checked-out commit, "-dirty" when tracked files differ from it; `BENCH_COMMIT` where only
    files were copied to the machine; the version where the package is installed without a checkout.
    """
    if told := os.environ.get("BENCH_COMMIT"):
        return told
    if not (ROOT / ".git").exists():
        return f"treadle {__version__}"
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return head + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def _cpu_info() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
