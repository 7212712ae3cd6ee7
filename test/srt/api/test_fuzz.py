"""Random bodies on every route that reads one: a 4xx or 5xx of our own making, never a 500."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from test.serving import Bench, serving
from treadle.srt.api import later, schema

BODIES: dict[str, list[type[msgspec.Struct]]] = {
    "/v1/chat/completions": [schema.ChatRequest, later.OpenAILater],
    "/v1/completions": [schema.CompletionRequest, later.OpenAILater],
    "/generate": [schema.GenerateBody, later.NativeLater],
    "/tokenize": [schema.TokenizeRequest],
    "/detokenize": [schema.DetokenizeRequest],
    "/abort_request": [schema.AbortBody],
    "/release_session": [schema.ReleaseBody],
}
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/generate": {"text": "a"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/abort_request": {"rid": "a"},
    "/release_session": {"session_id": "a"},
}
STATUSES = {200, 400, 404, 413, 501}

scalars = (
    st.none() | st.booleans() | st.integers(-3, 300) | st.integers() | st.floats()
    | st.text(max_size=8) | st.sampled_from(["user", "assistant", "text", "bounded", "none"])
)  # fmt: skip
words = st.sampled_from(
    ["role", "content", "type", "text", "function", "name", "arguments", "include_usage", "n",
     "max_new_tokens", "top_k", "stop", "json_schema", "schema", "7", "max_tokens"]
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(words | st.text(max_size=4), x, max_size=3),
    max_leaves=8,
)


def names(path: str) -> list[str]:
    return [f.encode_name for kind in BODIES[path] for f in msgspec.structs.fields(kind)]


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, bytes]:
    path = draw(st.sampled_from(sorted(BODIES)))
    own = st.dictionaries(st.sampled_from(names(path)), values, max_size=4)
    body = draw(st.one_of(own, own.map(lambda fields: {**VALID[path], **fields}), values))
    return path, json.dumps(body).encode()


async def send_all(sent: list[tuple[str, bytes]]) -> None:
    async with serving() as bench:
        for path, data in sent:
            await check(bench, path, data)
        assert bench.frontend.num_live == 0


async def check(bench: Bench, path: str, data: bytes) -> None:
    response = await bench.post(path, data)
    assert response.status_code in STATUSES, (path, data, response.text)
    if response.status_code != 200:
        assert response.json()["error"]["message"]
    assert "InternalServerError" not in response.text, (path, data, response.text)


@settings(max_examples=50)
@given(st.lists(calls(), min_size=1, max_size=4))
def test_random_bodies_never_give_500(sent: list[tuple[str, bytes]]):
    asyncio.run(send_all(sent))


@settings(max_examples=60)
@given(st.sampled_from(sorted(BODIES)), st.binary(max_size=40))
def test_random_bytes_never_give_500(path: str, data: bytes):
    asyncio.run(send_all([(path, data)]))
