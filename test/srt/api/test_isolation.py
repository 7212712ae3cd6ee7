"""Cache scopes per API key (T29)."""

from __future__ import annotations

from itertools import combinations

import pytest

from test.serving import serving
from treadle.srt.api.isolation import given_key
from treadle.srt.config import ApiSection

PER_KEY = ApiSection(cache_isolation="per-key")
CALLERS: tuple[dict[str, str], ...] = (
    {},
    {"authorization": "Bearer a"},
    {"authorization": "Bearer b"},
    {"x-api-key": "c"},
)
ROUTES = (
    ("/generate", {"text": "a"}),
    ("/v1/completions", {"prompt": "a"}),
    ("/v1/chat/completions", {"input_ids": [1]}),
)


async def test_two_keys_never_share_a_scope_on_any_route():
    async with serving(api=PER_KEY) as bench:
        for headers in CALLERS:
            for path, body in ROUTES:
                await bench.client.post(path, json=body, headers=headers)
        spaces = [request.namespace for request in bench.engine.requests]
    owners = [spaces[i : i + 3] for i in range(0, len(spaces), 3)]
    for owner in owners:
        assert len(set(owner)) == 1
    for one, other in combinations(owners, 2):
        assert one[0] != other[0]


async def test_a_key_is_the_same_in_either_header_and_never_in_clear():
    async with serving(api=PER_KEY) as bench:
        for headers in ({"authorization": "Bearer secret"}, {"x-api-key": "secret"}):
            await bench.client.post("/generate", json={"text": "a"}, headers=headers)
        one, other = (request.namespace for request in bench.engine.requests)
    assert one == other
    assert "secret" not in repr(one)


async def test_no_salt_of_a_body_can_spell_the_scope_of_another():
    async with serving(api=PER_KEY) as bench:
        victim = {"authorization": "Bearer victim"}
        await bench.client.post("/generate", json={"text": "a"}, headers=victim)
        ((_, owner),) = bench.engine.requests[0].namespace
        for field in ("cache_salt", "extra_key"):
            await bench.client.post("/generate", json={"text": "a", field: owner})
        spaces = {request.namespace for request in bench.engine.requests}
    assert len(spaces) == 3


async def test_without_isolation_keys_share():
    async with serving() as bench:
        for headers in CALLERS:
            await bench.client.post("/generate", json={"text": "a"}, headers=headers)
        assert {request.namespace for request in bench.engine.requests} == {()}


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({}, b""),
        ({b"authorization": b"Basic x"}, b""),
        ({b"authorization": b"bearer  x "}, b"x"),
        ({b"authorization": b"Basic x", b"x-api-key": b"y"}, b"y"),
    ],
)
def test_given_key(headers: dict[bytes, bytes], key: bytes):
    assert given_key(headers) == key
