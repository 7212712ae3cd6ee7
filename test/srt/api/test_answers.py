"""Real answers of every route read against the Structs that document them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from test.serving import Bench, FakeEngine, parse_events, serving
from treadle.srt.api import endpoint_table as table
from treadle.srt.api.answers import ErrorBody, ServerInfoBody
from treadle.srt.api.endpoint import Endpoint

HI = [{"role": "user", "content": "hi"}]
POSTED: list[tuple[Endpoint, dict[str, Any]]] = [
    (table.CHAT, {"messages": HI}),
    (table.CHAT, {"messages": HI, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}),
    (table.CHAT, {"messages": HI, "stop": "l", "n": 2}),
    (table.CHAT, {"messages": HI, "return_cached_tokens_details": True}),
    (table.COMPLETION, {"prompt": "a", "return_cached_tokens_details": True}),
    (table.COMPLETION, {"prompt": ["a", "b"], "logprobs": 2, "return_token_ids": True}),
    (table.GENERATE, {"text": "a"}),
    (
        table.GENERATE,
        {
            "text": ["a", "b"],
            "return_logprob": True,
            "top_logprobs_num": 2,
            "logprob_start_len": 0,
            "token_ids_logprob": [5],
        },
    ),
    (table.COMPLETION, {"prompt": ["a", "b"], "logprobs": 2, "echo": True}),
    (table.TOKENIZE, {"prompt": "a"}),
    (table.TOKENIZE, {"prompt": ["a", "b"]}),
    (table.DETOKENIZE, {"tokens": [97]}),
    (table.DETOKENIZE, {"tokens": [[97], [98]]}),
    (table.ABORT, {"rid": "x"}),
]
GOT = [table.VERSION, table.MODELS, table.MODEL_CARD, table.MODEL_INFO, table.SERVER_INFO]
GOT += [table.DASHBOARD_DATA]


def check(kind: Any, body: Any) -> None:
    """`body` has the type, and no member that the type lacks."""
    read = msgspec.to_builtins(msgspec.convert(body, kind))
    missing = sorted(names(body, "") - names(read, ""))
    assert not missing


def names(value: Any, path: str) -> set[str]:
    if isinstance(value, list):
        return {name for item in value for name in names(item, f"{path}[]")}
    if not isinstance(value, dict):
        return set()
    inner = {name for key, item in value.items() for name in names(item, f"{path}.{key}")}
    return inner | {f"{path}.{key}" for key in value}


@pytest.mark.parametrize(("endpoint", "body"), POSTED, ids=lambda x: getattr(x, "path", ""))
async def test_answers_are_as_documented(endpoint: Endpoint, body: dict[str, Any]):
    async with serving(FakeEngine(cached=1, replayed=1)) as bench:
        response = await bench.post(endpoint.path, body)
        assert response.status_code == 200
        check(endpoint.replies[0].kind, response.json())
        if endpoint.event is None:
            return
        extra: dict[str, Any] = {"stream": True}
        if endpoint is not table.GENERATE:
            extra["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        streamed = await bench.post(endpoint.path, {**body, **extra})
        for event in parse_events(streamed.text):
            check(endpoint.event, event)


@pytest.mark.parametrize("endpoint", GOT, ids=lambda e: e.path)
async def test_facts_are_as_documented(bench: Bench, endpoint: Endpoint):
    body = (await bench.client.get(endpoint.path.replace("{name:path}", "tiny"))).json()
    if endpoint is table.SERVER_INFO:
        assert msgspec.convert(body, ServerInfoBody)
    else:
        check(endpoint.replies[0].kind, body)


async def test_errors_are_as_documented(bench: Bench):
    check(ErrorBody, (await bench.post("/generate", {})).json())
    check(ErrorBody, (await bench.client.get("/nope")).json())
