"""`python -m treadle.bench report`: results as tables of the README and as one HTML page.

The README's tables stand between markers (`report_tables`). `--check` writes nothing; its exit
status is 1 where the README differs from the results.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from .environment import ROOT
from .report_page import page
from .report_tables import rendered


def main(argv: Sequence[str]) -> int:
    """Exit status. Raises ValueError, OSError for what the user can mend."""
    args = _parser().parse_args(argv)
    old = args.readme.read_text()
    new = rendered(old, args.results)
    if args.check:
        return _difference(old, new, args.readme.name)
    args.html.parent.mkdir(parents=True, exist_ok=True)
    args.html.write_text(page(args.results))
    if new != old:
        args.readme.write_text(new)
    sys.stdout.write(f"{args.readme.name}: {'written' if new != old else 'as it was'}\n")
    sys.stdout.write(f"{args.html}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m treadle.bench report",
        description="Write the README's tables of results, and a page of all results with plots.",
    )
    add = found.add_argument
    add("--results", type=Path, default=ROOT / "benchmark/results", help="the folder of results")
    add("--readme", type=Path, default=ROOT / "README.md")
    add("--html", type=Path, default=ROOT / "build/report.html")
    add("--check", action="store_true", help="only say whether the README is that of the results")
    return found


def _difference(old: str, new: str, name: str) -> int:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), name, f"{name} of the results"
    )
    text = "".join(lines)
    sys.stdout.write(text)
    return 1 if text else 0
