"""Keys, request ids, counting, and bugs that become a 500."""

from __future__ import annotations

import logging

import httpx
import pytest

from test.serving import Bench, serving
from treadle.srt.config import ApiSection, NetSection

BODY = {"text": "a"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic key"}, 401),
        ({"x-api-key": "ke"}, 401),
        ({"authorization": "Bearer key"}, 200),
        ({"authorization": "bearer key"}, 200),
        ({"x-api-key": "key"}, 200),
    ],
)
async def test_key_is_needed_in_one_of_two_headers(headers: dict[str, str], status: int):
    async with serving(net=NetSection(api_key="key")) as bench:
        response = await bench.client.post("/generate", json=BODY, headers=headers)
        assert response.status_code == status
        if status == 401:
            body = response.json()
            assert body["error"] == "Unauthorized"
            assert body["type"] == "AuthenticationError"
            assert body["object"] == "error"


async def test_health_and_metrics_need_no_key():
    async with serving(net=NetSection(api_key="key")) as bench:
        for path in ("/health", "/health_generate", "/ready", "/ping", "/metrics"):
            assert (await bench.client.get(path)).status_code == 200
        assert (await bench.client.get("/v1/models")).status_code == 401


KEYS = {"user": NetSection(api_key="user"), "none": NetSection()}


@pytest.mark.parametrize(
    ("net", "key", "control", "generate"),
    [
        ("user", "", 401, 401),
        ("user", "user", 403, 200),
        ("user", "admin", 200, 200),
        ("user", "wrong", 401, 401),
        ("none", "", 401, 200),
        ("none", "admin", 200, 200),
        ("none", "wrong", 403, 200),
    ],
)
async def test_control_routes_need_the_admin_key_where_there_is_one(
    net: str, key: str, control: int, generate: int
):
    async with serving(net=KEYS[net], api=ApiSection(admin_api_key="admin")) as bench:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        for path, status in (("/flush_cache", control), ("/generate", generate)):
            answer = await bench.client.post(path, json=BODY, headers=headers)
            assert answer.status_code == status
        stop = {"abort_all": True}
        answer = await bench.client.post("/abort_request", json=stop, headers=headers)
        assert answer.status_code == (403 if generate == 200 != control else control)
        one = await bench.client.post("/abort_request", json={"rid": "x"}, headers=headers)
        assert one.status_code == generate


async def test_pages_of_other_origins_may_call_only_when_the_server_says_so():
    asking = {"origin": "http://page", "access-control-request-method": "POST"}
    async with serving(net=NetSection(api_key="key")) as bench:
        assert (await bench.client.options("/generate", headers=asking)).status_code == 405
        answer = await bench.client.get("/health", headers=asking)
        assert "access-control-allow-origin" not in answer.headers
    api = ApiSection(cors_origins="http://page, http://other")
    async with serving(net=NetSection(api_key="key"), api=api) as bench:
        answer = await bench.client.options("/generate", headers=asking)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "http://page"
        refused = await bench.client.post("/generate", json=BODY, headers=asking)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "http://page"
        stranger = {**asking, "origin": "http://stranger"}
        answer = await bench.client.get("/health", headers=stranger)
        assert "access-control-allow-origin" not in answer.headers


async def test_request_id_is_echoed_or_given(bench: Bench):
    assert (await bench.post("/generate", BODY, x_request_id="me")).headers["x-request-id"] == "me"
    given = (await bench.client.get("/health")).headers["x-request-id"]
    assert len(given) == 32
    missing = await bench.client.get("/nope", headers={"x-request-id": "me"})
    assert missing.headers["x-request-id"] == "me"


@pytest.mark.parametrize("bad", ["x" * 257, "a b", "a\x7f"])
async def test_odd_request_ids_are_replaced(bench: Bench, bad: str):
    response = await bench.client.get("/health", headers={"x-request-id": bad})
    assert len(response.headers["x-request-id"]) == 32


async def test_bug_becomes_500_with_an_id_that_the_log_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("treadle.srt.tokenizer.frontend.Frontend.submit", broken)
    with caplog.at_level(logging.ERROR):
        response = await bench.post("/generate", BODY)
    assert response.status_code == 500
    assert "secret" not in response.text
    error_id = response.json()["message"].split()[-1]
    assert error_id in caplog.text
    assert "secret" in caplog.text


async def test_requests_are_counted_by_route_pattern(bench: Bench):
    await bench.client.get("/v1/models/one")
    await bench.client.get("/v1/models/tiny")
    text = (await bench.client.get("/metrics")).text
    assert (
        'sglang:http_responses_total{endpoint="/v1/models/{name:path}",method="GET",'
        'status_code="404"} 1.0'
    ) in text
    assert 'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0' in text


async def test_requests_are_logged_only_when_asked(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        async with serving() as bench:
            await bench.post("/generate", BODY)
        assert "http_request" not in caplog.text
        async with serving(net=NetSection(log_requests=True)) as bench:
            await bench.post("/generate", BODY)
    assert "http_request path=/generate status=200" in caplog.text


async def test_keys_are_asked_for_below_the_prefix_of_a_proxy():
    async with serving(net=NetSection(api_key="key")) as bench:
        transport = httpx.ASGITransport(bench.app, root_path="/llm")
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            assert (await client.get("/llm/health")).status_code == 200
            assert (await client.get("/llm/v1/models")).status_code == 401
            assert (await client.get("/llm/v1/models", headers={"x-api-key": "key"})).is_success
