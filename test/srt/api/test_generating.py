"""Scope, session and ids of a request."""

from __future__ import annotations

import asyncio

import pytest

from test.serving import Bench, hold
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


async def test_priority_has_no_effect_while_its_flag_is_refused(bench: Bench):
    await bench.post(PATH, {"text": "a", "priority": 4})
    await bench.post("/v1/completions", {"prompt": "a", "priority": 2**40})
    await bench.post("/v1/chat/completions", {"input_ids": [1], "priority": -1})
    assert [request.priority for request in bench.engine.requests] == [0] * 3


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
