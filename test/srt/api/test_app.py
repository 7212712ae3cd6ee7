"""The path table."""

from __future__ import annotations

from test.serving import Bench


async def test_unknown_route_and_wrong_method_have_the_same_body(bench: Bench):
    missing = await bench.client.get("/nope")
    assert missing.status_code == 404
    assert missing.json()["error"]["type"] == "NotFoundError"
    wrong = await bench.client.get("/generate")
    assert wrong.status_code == 405
    assert "POST" in wrong.headers["allow"]
    assert wrong.json()["object"] == "error"


async def test_every_promised_route_exists(bench: Bench):
    got = ["/", "/version", "/v1/models", "/v1/models/tiny", "/model_info", "/get_model_info",
           "/server_info", "/get_server_info", "/metrics", "/health", "/health_generate", "/ready",
           "/ping", "/flush_cache", "/reset_prefix_cache"]  # fmt: skip
    for path in got:
        assert (await bench.client.get(path)).status_code == 200, path
    posted = {
        "/tokenize": {"prompt": "a"}, "/v1/tokenize": {"prompt": "a"},
        "/detokenize": {"tokens": [1]}, "/v1/detokenize": {"tokens": [1]},
        "/abort_request": {"rid": "x"}, "/abort_requests": {"rid": "x"},
        "/flush_cache": {}, "/reset_prefix_cache": {},
    }  # fmt: skip
    for path, body in posted.items():
        assert (await bench.post(path, body)).status_code == 200, path
