"""A file of two short sessions, as `agent_sessions.jsonl` has them."""

from __future__ import annotations

from pathlib import Path

import orjson

# t_s, input, output, parent, shared blocks, type, stop
REQUESTS = (
    (0.0, 640, 128, -1, 0, "s", ""),
    (9.0, 1280, 64, 0, 10, "s", ""),  # goes on from prompt and output of its parent
    (12.0, 1600, 64, 1, 4, "s", ""),  # goes back to a part of the prompt
)


def write(folder: Path, requests: tuple = REQUESTS) -> Path:
    path = folder / "agents.jsonl"
    rows = [{"id": name, "block_tokens": 64, "requests": requests} for name in "ab"]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return path
