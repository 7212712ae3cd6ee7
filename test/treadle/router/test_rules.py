"""Every rule of the router is named in a test, and so are the two tests that decide."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
RULES = [f"A{number}" for number in range(1, 24)]
DECIDING = ["test 9", "test 10"]


def test_every_rule_and_deciding_test_is_cited():
    here = Path(__file__)
    files = [*here.parent.glob("test_*.py"), TESTS / "e2e/test_router.py"]
    comments = [
        line.partition("#")[2] or line
        for path in files
        if path != here
        for line in path.read_text().splitlines()
        if line.startswith(("def test_", "async def test_", ")", "@pytest"))
    ]
    text = "\n".join(comments)
    missing = [name for name in (*RULES, *DECIDING) if not re.search(rf"\b{name}\b", text)]
    assert not missing
