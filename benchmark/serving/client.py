"""Streaming requests over HTTP, timed at the arrival of each event.

Owns the wire of two servers: ours (`/generate`, cumulative events) and llama.cpp's (`/completion`,
events with the new tokens). A blocking socket per request and parsing after the last byte, because
on few cores the client's own work would count against the servers.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from typing import Protocol

import orjson

TIMEOUT_S = 600.0

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Reply:
    """`times_s[i]` is when the event that brought token i arrived, after the request was sent.
    `rows` are prompt rows that the server says it ran, replayed ones included.
    """

    token_ids: list[int]
    times_s: list[float]
    rows: int
    cached: int

    @property
    def ttft_s(self) -> float:
        return self.times_s[0]

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second after the first event; None for a single one."""
        first, last = self.times_s[0], self.times_s[-1]
        later = sum(at > first for at in self.times_s)
        return later / (last - first) if later else None


@dataclass(frozen=True, slots=True)
class Event:
    at_s: float
    data: Json


class Wire(Protocol):
    """How one kind of server is asked."""

    def generate(self, port: int, prompt: list[int], max_tokens: int) -> Reply: ...

    def tokenize(self, port: int, text: str, *, add_special: bool) -> list[int]: ...


class TreadleWire:
    """`fields` are added to every body of /generate, such as `swa_replay_slope`."""

    def __init__(self, fields: Json | None = None) -> None:
        self._fields = fields or {}

    def generate(self, port: int, prompt: list[int], max_tokens: int) -> Reply:
        sampling = {"max_new_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        body = {"input_ids": prompt, "sampling_params": sampling, "stream": True, **self._fields}
        events = post_stream(port, "/generate", body)
        times: list[float] = []
        for event in events:
            count = len(int_list(event.data["output_ids"]))
            times += [event.at_s] * (count - len(times))
        last = events[-1].data
        meta = last["meta_info"]
        assert isinstance(meta, dict)
        rows = meta["prompt_tokens"] - meta["cached_tokens"] + meta["replayed_tokens"]
        return Reply(int_list(last["output_ids"]), times, rows, meta["cached_tokens"])

    def tokenize(self, port: int, text: str, *, add_special: bool) -> list[int]:
        body = {"prompt": text, "add_special_tokens": add_special}
        return int_list(post(port, "/tokenize", body)["tokens"])


class LlamaWire:
    """Greedy with the shortest sampler chain; the prompt cache is on."""

    def generate(self, port: int, prompt: list[int], max_tokens: int) -> Reply:
        body: Json = {
            "prompt": prompt,
            "n_predict": max_tokens,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "ignore_eos": True,
            "samplers": ["top_k"],
            "top_k": 1,
        }
        events = post_stream(port, "/completion", body)
        ids: list[int] = []
        times: list[float] = []
        for event in events:
            new = int_list(event.data.get("tokens", []))
            ids += new
            times += [event.at_s] * len(new)
        timings = events[-1].data["timings"]
        assert isinstance(timings, dict)
        return Reply(ids, times, timings["prompt_n"], timings["cache_n"])

    def tokenize(self, port: int, text: str, *, add_special: bool) -> list[int]:
        body = {"content": text, "add_special": add_special}
        return int_list(post(port, "/tokenize", body)["tokens"])


def post_stream(port: int, path: str, body: Json) -> list[Event]:
    """All `data:` events but `[DONE]`. Raises RuntimeError for any status but 200."""
    data = orjson.dumps(body)
    lines: list[tuple[float, bytes]] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        start = time.perf_counter()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {response.read()[:500]!r}")
        while line := response.readline():
            lines.append((time.perf_counter() - start, line))
    finally:
        connection.close()
    found = [(at, line[6:].strip()) for at, line in lines if line.startswith(b"data: ")]
    return [Event(at, orjson.loads(text)) for at, text in found if text != b"[DONE]"]


def post(port: int, path: str, body: Json) -> Json:
    status, data = exchange(port, "POST", path, orjson.dumps(body))
    if status != 200:
        raise RuntimeError(f"{path}: {status} {data[:500]!r}")
    found: Json = orjson.loads(data)
    return found


def exchange(port: int, method: str, path: str, data: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def int_list(value: object) -> list[int]:
    assert isinstance(value, list)
    return value
