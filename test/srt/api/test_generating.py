"""Scope, session and ids of a request."""

from __future__ import annotations

import asyncio

import pytest

from test.serving import Bench, hold, serving
from treadle.srt.config import ApiSection
from treadle.srt.tokenizer.encode import Tokenizer

PATH = "/generate"


@pytest.mark.parametrize(
    ("headers", "field", "session"),
    [
        ({}, None, None),
        ({"x-session-id": "h"}, None, "h"),
        ({"x-session-id": "h"}, "body", "body"),
        ({"x-session-id": "h", "x-correlation-id": "c"}, None, "c"),
        ({"x-dynamo-parent-session-id": "p"}, "", "p"),
    ],
)
async def test_session_is_the_bodys_else_the_first_header(
    bench: Bench, headers: dict[str, str], field: str | None, session: str | None
):
    await bench.post(PATH, {"text": "a", "session_id": field}, **headers)
    assert bench.engine.requests[0].session == session


async def test_salt_and_extra_key_are_typed_so_they_cannot_collide(bench: Bench):
    for body in ({"cache_salt": "x"}, {"extra_key": "x"}, {}, {"cache_salt": "", "extra_key": ""}):
        await bench.post(PATH, {"text": "a", **body})
    spaces = [request.namespace for request in bench.engine.requests]
    assert spaces == [(("salt", "x"),), (("extra", "x"),), (), ()]


@pytest.mark.parametrize("mode", ["bounded", "exact", "canonical", "off"])
async def test_replay_fields_are_on_every_route(bench: Bench, mode: str):
    fields = {"swa_replay": mode, "swa_replay_slope": 32}
    await bench.post(PATH, {"text": "a", **fields})
    await bench.post("/v1/completions", {"prompt": "a", **fields})
    await bench.post("/v1/chat/completions", {"input_ids": [1], **fields})
    got = [(r.replay_mode, r.replay_slope) for r in bench.engine.requests]
    assert got == [(mode, 32)] * 3


async def test_rid_of_a_running_request_is_refused_until_it_ends(bench: Bench):
    bench.engine.script = hold
    first = asyncio.create_task(bench.post(PATH, {"text": "a", "rid": "r"}))
    while not bench.engine.live:
        await asyncio.sleep(0)
    again = await bench.post(PATH, {"text": "a", "rid": "r"})
    assert again.status_code == 400
    assert "'r' belongs to a running request" in again.json()["message"]
    await bench.post("/abort_request", {"rid": "r"})
    await first
    assert bench.frontend.num_live == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"text": "a"}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}),
    ],
)
async def test_a_router_names_the_request_unless_its_body_does(
    bench: Bench, path: str, body: dict[str, object]
):  # A23
    await bench.post(path, body, **{"x-rid": "by-router"})
    await bench.post(path, {**body, "rid": "by-client"}, **{"x-rid": "by-router"})
    assert [request.rid for request in bench.engine.requests] == ["by-router", "by-client"]


async def test_absurd_rid_is_refused(bench: Bench):
    response = await bench.post(PATH, {"text": "a", "rid": "x" * 513})
    assert response.status_code == 400
    assert response.json()["param"] == "rid"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, {"text": ["a"] * 64, "sampling_params": {"n": 128}}),
        (PATH, {"text": ["a"] * 4097}),
        ("/v1/completions", {"prompt": ["a"] * 64, "n": 128}),
    ],
)
async def test_too_many_outputs_are_refused_before_anything_is_encoded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
):
    def encode(self: Tokenizer, text: str, *, add_special: bool) -> list[int]:
        raise AssertionError("work for a request that is refused")

    monkeypatch.setattr(Tokenizer, "encode", encode)
    response = await bench.post(path, body)
    assert response.status_code == 400
    assert "at most 4096" in response.json()["message"]


async def test_min_tokens_shrinks_with_a_limit_cut_by_the_context(bench: Bench):
    sampling = {"max_new_tokens": None, "min_new_tokens": 100}
    await bench.post(PATH, {"input_ids": [1] * 150, "sampling_params": sampling})
    (request,) = bench.engine.requests
    assert (request.sampling.max_new_tokens, request.sampling.min_new_tokens) == (50, 50)


async def test_priority_and_the_shorter_of_two_deadlines_reach_the_scheduler():
    api = ApiSection(request_timeout_s=60.0, queue_timeout_s=5.0)
    async with serving(api=api) as bench:
        for extra in ({}, {"deadline_s": 2.5, "priority": -3}, {"deadline_s": 90}):
            assert (await bench.post("/generate", {"text": "a", **extra})).status_code == 200
        got = [(r.priority, r.queue_timeout_s, r.timeout_s) for r in bench.engine.requests]
        assert got == [(0, 5.0, 60.0), (-3, 5.0, 2.5), (0, 5.0, 60.0)]
    async with serving() as bench:
        await bench.post("/v1/completions", {"prompt": "a", "deadline_s": 2})
        (request,) = bench.engine.requests
        assert (request.queue_timeout_s, request.timeout_s) == (None, 2.0)
