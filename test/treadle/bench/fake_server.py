"""A server of every dialect that the bench speaks, with an exact prefix cache and instant answers.

A word is a token: its id is its place in the list of words, 1000 and more for others. Every answer
is as many tokens of the word "so" as were asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from treadle.bench.vocabulary import WORDS

Json = dict[str, Any]
BOS = 5000
REPLY = WORDS.index("so")


@dataclass
class FakeServer:
    """`asked`: (path, headers, body) of every generation. `fails_after`: generations that are
    answered before all others are refused; `replayed`: what a hit replays."""

    owner: str = "sglang"
    fails_after: int = 10**9
    replayed: int = 0
    has_tokenizer: bool = True
    asked: list[tuple[str, dict[str, str], Json]] = field(default_factory=list)
    flushed: int = 0
    profiles: list[Json | None] = field(default_factory=list)  # None: stopped
    _seen: list[list[int]] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/server_info", self._info)
        app.router.add_post("/flush_cache", self._flush)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/start_profile", self._start_profile)
        app.router.add_post("/stop_profile", self._stop_profile)
        app.router.add_post("/v1/embeddings", self._embed)
        for path in ("/generate", "/completion", "/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._generate)
        return app

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        async with TestServer(self.app()) as server:
            yield str(server.make_url("")).rstrip("/")

    @property
    def bodies(self) -> list[Json]:
        return [body for _, _, body in self.asked]

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake", "owned_by": self.owner}]})

    async def _info(self, request: web.Request) -> web.Response:
        state = {"avg_spec_accept_length": 1.5, "last_gen_throughput": 12.5}
        return web.json_response({"internal_states": [state]})

    async def _flush(self, request: web.Request) -> web.Response:
        self.flushed += 1
        self._seen = []
        return web.Response()

    async def _start_profile(self, request: web.Request) -> web.Response:
        wish = orjson.loads(await request.read())
        if "profile_by_stage" in wish:
            return web.json_response({"error": "profile_by_stage is not supported"}, status=501)
        self.profiles.append(wish)
        return web.json_response({})

    async def _stop_profile(self, request: web.Request) -> web.Response:
        self.profiles.append(None)
        return web.json_response({})

    async def _embed(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.asked.append((request.path, dict(request.headers), body))
        usage = {"prompt_tokens": len(ids_of(body["input"]))}
        return web.json_response({"data": [{"embedding": [0.5]}], "usage": usage})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        text = body.get("content" if self.owner == "llamacpp" else "prompt")
        if text is None or not self.has_tokenizer:
            return web.Response(status=400)
        special = body.get("add_special_tokens") or body.get("add_special")
        return web.json_response({"tokens": [*([BOS] if special else []), *ids_of(text)]})

    async def _generate(self, request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        self.asked.append((request.path, dict(request.headers), body))
        if len(self.asked) > self.fails_after:
            return web.json_response({"error": "full"}, status=503)
        ids, count = read(request.path, body)
        cached = max((_common(ids, other) for other in self._seen), default=0)
        self._seen.append([*ids, *[REPLY] * (count - 1)])  # the last one was never an input
        events = self._events(request.path, len(ids), min(cached, len(ids) - 1), count)
        if not body["stream"]:
            return web.json_response(whole(request.path, events))
        text = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)
        return web.Response(body=text + b"data: [DONE]\n\n", content_type="text/event-stream")

    def _events(self, path: str, prompt: int, cached: int, count: int) -> list[Json]:
        steps = sorted({1, count})
        if path == "/generate":
            meta: Json = {"prompt_tokens": prompt, "cached_tokens": cached}
            meta["replayed_tokens"] = self.replayed if cached else 0
            return [
                {"text": " so" * n, "output_ids": [REPLY] * n,
                 "meta_info": {**meta, "completion_tokens": n}}
                for n in steps
            ]  # fmt: skip
        if path == "/completion":
            timings = {"prompt_n": prompt - cached, "cache_n": cached}
            events: list[Json] = [{"content": " so", "tokens": [REPLY]} for _ in range(count)]
            return [*events, {"content": "", "tokens": [], "stop": True, "timings": timings}]
        key = "delta" if path.endswith("chat/completions") else None
        piece = {key: {"content": " so"}} if key else {"text": " so"}
        usage: Json = {"prompt_tokens": prompt, "completion_tokens": count}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}
        return [*[{"choices": [piece]} for _ in range(count)], {"choices": [], "usage": usage}]


def ids_of(text: str) -> list[int]:
    return [WORDS.index(word) if word in WORDS else 1000 + len(word) for word in text.split()]


def read(path: str, body: Json) -> tuple[list[int], int]:
    """Prompt and number of tokens."""
    if path == "/generate":
        ids = body["input_ids"] if "input_ids" in body else ids_of(body["text"])
        return ids, body["sampling_params"]["max_new_tokens"]
    if path == "/v1/chat/completions":
        text = " ".join(f"{m['role']} {m['content']}" for m in body["messages"])
        return ids_of(text), body["max_completion_tokens"]
    prompt = body["prompt"]
    ids = ids_of(prompt) if isinstance(prompt, str) else prompt
    return ids, body["n_predict" if path == "/completion" else "max_tokens"]


def whole(path: str, events: list[Json]) -> Json:
    if not path.startswith("/v1"):
        last = events[-1]
        tokens = [token for event in events for token in event.get("tokens", [])]
        return {**last, "tokens": tokens} if "timings" in last else last
    text = " so" * (len(events) - 1)
    is_chat = path.endswith("chat/completions")
    choice: Json = {"message": {"content": text}} if is_chat else {"text": text}
    return {"choices": [choice], "usage": events[-1]["usage"]}


def _common(one: list[int], other: list[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
