"""A good request that runs while a test does something bad to the same server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from test.e2e.server import Server
from test.e2e.streams import iter_lines

GOOD: dict[str, Any] = {
    "text": "the thread", "rid": "good", "stream": True,
    "sampling_params": {"temperature": 0, "ignore_eos": True, "max_new_tokens": 200},
}  # fmt: skip


class Running:
    """The good request: it has begun when this is made; `text` reads it to its end."""

    def __init__(self, http: httpx.Client, **changes: Any) -> None:
        """`changes` replace fields of the body."""
        body = {**GOOD, **changes}
        self._opened = http.stream("POST", "/generate", json=body, headers=auth("user"))
        response = self._opened.__enter__()
        assert response.status_code == 200
        self._lines = iter_lines(response)
        self._next()

    def _next(self) -> dict[str, Any] | None:
        line = next(line for line in self._lines if line)
        data = line.removeprefix("data: ")
        return None if data == "[DONE]" else json.loads(data)

    def last(self) -> dict[str, Any]:
        last: dict[str, Any] = {}
        while (event := self._next()) is not None:
            last = event
        self._opened.__exit__(None, None, None)
        return last

    def text(self) -> str:
        last = self.last()
        assert last["meta_info"]["completion_tokens"] == 200, last
        return last["text"]


@contextmanager
def held(server: Server, http: httpx.Client, *runs: dict[str, Any]) -> Iterator[list[Running]]:
    """Requests that run, one for each of `runs`, and cannot end inside: the worker is held. If one
    was done before that, all begin once more."""
    while True:
        running = [Running(http, **changes) for changes in runs]
        with server.held():
            (load,) = http.get("/v1/loads", headers=auth("user")).json()["loads"]
            if load["num_running_reqs"] == len(running):
                yield running
                return
        for one in running:
            one.last()


def auth(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}
