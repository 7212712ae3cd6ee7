"""The native route as the tests of real models ask it: /generate with ids."""

from __future__ import annotations

from pathlib import Path

import httpx

from test.e2e.server import Server

ROOT = Path(__file__).parents[2]


def generate(server: Server, **body: object) -> dict[str, object]:
    response = httpx.post(server.url + "/generate", json=body, timeout=240)
    assert response.status_code == 200, response.text
    return response.json()


def greedy(max_new_tokens: int) -> dict[str, object]:
    return {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}


def usage(answer: dict[str, object]) -> tuple[int, int, int]:
    meta = answer["meta_info"]
    assert isinstance(meta, dict)
    return meta["prompt_tokens"], meta["cached_tokens"], meta["replayed_tokens"]


def source_ids(server: Server, count: int) -> list[int]:
    names = ("ARCHITECTURE.md", "cache/radix.py", "cache/manager.py", "cache/replay.py")
    files = [*(ROOT / "srt" / name for name in names), ROOT / "python/treadle/command_line.py"]
    text = "".join(path.read_text() for path in files)
    answer = httpx.post(server.url + "/tokenize", json={"prompt": text}, timeout=60).json()
    return answer["tokens"][:count]


def logprobs(answer: dict[str, object]) -> list[float]:
    meta = answer["meta_info"]
    assert isinstance(meta, dict)
    return [entry[0] for entry in meta["output_token_logprobs"]]
