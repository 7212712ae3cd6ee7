"""Builds the CPU library in place: `python -m treadle.kernels.cpu.build`.

For running from a checkout without installing. An installation compiles the same sources with the
same flags through `pyproject.toml` (`ext-modules`); a test holds the two lists together.

The library brings its own threads (`pool.h`) and links against nothing but the C++ runtime.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent

COMPILE_FLAGS = ("-std=c++17", "-O3", "-pthread", "-ffp-contract=off", "-Wno-psabi")


def sources() -> list[Path]:
    """Every C++ file of the library, sorted."""
    return sorted(FOLDER.glob("*.cpp"))


def build(compiler: str, target: Path) -> None:
    """Compile all sources in parallel and link them to `target`.

    Raises `CalledProcessError`, `FileNotFoundError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / f"{source.stem}.o" for source in sources()]
        jobs = [
            subprocess.Popen(
                [compiler, *COMPILE_FLAGS, "-fPIC", "-c", str(source), "-o", str(made)]
            )
            for source, made in zip(sources(), objects, strict=True)
        ]
        failed = [job.args for job in jobs if job.wait() != 0]
        if failed:
            raise subprocess.CalledProcessError(1, str(failed[0]))
        linked = Path(folder) / target.name
        subprocess.run(
            [compiler, "-shared", "-pthread", "-o", str(linked), *map(str, objects)], check=True
        )
        # a process that has the old file mapped keeps it: replace, never overwrite
        temporary = target.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(linked.read_bytes())
        temporary.replace(target)


def main() -> int:
    """Command line. Returns 1 with a message when there is no compiler or it fails."""
    parser = argparse.ArgumentParser(description="Build the CPU kernels of treadle in place.")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    compiler = parser.parse_args().compiler
    try:
        build(compiler, FOLDER / "_treadle_cpu.so")
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        sys.stderr.write(f"cannot build the CPU kernels: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
