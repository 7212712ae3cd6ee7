"""A coding agent on a temporary folder: several requests of a user in one conversation, tools that
read and write files and cannot leave the folder, events shown while it works.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import treadle as tr
from treadle.lang.examples.command import show

REQUESTS = (
    "Which .md files are in /docs/candle?",
    "Copy /docs/candle/garden.md to /docs/candle/sage.bak.",
)


def file_tools(root: Path) -> tr.Tools:
    def inside(path: str) -> Path:
        found = (root / path.lstrip("/")).resolve()
        if not found.is_relative_to(root.resolve()):
            raise PermissionError(f"{path} is outside of the workspace")
        return found

    def write_file(path: str, content: str) -> str:
        """Write a text file."""
        inside(path).write_text(content)
        return "ok"

    def list_dir(path: str) -> str:
        """List the files in a directory."""
        return "\n".join(sorted(each.name for each in inside(path).iterdir()))

    def read_file(path: str) -> str:
        """Read a text file."""
        return inside(path).read_text()

    return tr.Tools([write_file, list_dir, read_file])


@tr.function
def work(s: tr.State, root: Path, requests: tuple[str, ...]) -> list[str]:
    tools = file_tools(root)
    s += tr.system("You are a helpful assistant.")
    answers = []
    for index, request in enumerate(requests):
        s += tr.user(request)
        s += tr.agent(f"answer{index}", tools=tools, max_turns=5)
        answers.append(s[f"answer{index}"])
    return answers


def main() -> tuple[list[str], list[str], dict[str, str]]:
    """The answers, the calls in their order, and the files at the end."""
    with tempfile.TemporaryDirectory() as folder:
        root, place = Path(folder), Path(folder, "docs", "candle")
        place.mkdir(parents=True)
        (place / "garden.md").write_text("meadow-458")
        (place / "plan.txt").write_text("later")
        state = work.run(root, REQUESTS, temperature=0, stream=True)
        calls = [event.call.name for event in state.events() if isinstance(event, tr.CallEvent)]
        state.sync()
        files = {path.name: path.read_text() for path in place.iterdir()}
        return state.ret_value, calls, files


if __name__ == "__main__":
    show(main)
