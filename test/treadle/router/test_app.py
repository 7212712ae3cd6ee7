"""The router's own routes."""

from __future__ import annotations

from test.treadle.router.fake_replica import answer
from test.treadle.router.harness import routing


async def test_readiness_needs_a_ready_worker_and_liveness_does_not():  # A17
    async with routing(answer(), is_ready=False) as bench:
        bench.replicas[0].ready = 503
        await bench.probe()
        for path in ("/ready", "/readiness", "/health", "/health_generate", "/ping"):
            assert (await bench.http.get(path)).status_code == 503
        assert (await bench.http.get("/liveness")).status_code == 200
        bench.replicas[0].ready = 200
        await bench.probe()
        assert (await bench.http.get("/health_generate")).status_code == 200
        assert not bench.replicas[0].seen


async def test_wrong_methods_are_refused():
    async with routing(answer()) as bench:
        got = await bench.http.put("/workers", json={})
        assert got.status_code == 405 and "allow" in got.headers
        assert got.json()["object"] == "error"


async def test_other_routes_go_to_a_replica():
    async with routing(answer(200, b"there")) as bench:
        for path in ("/v1/models/m", "/get_model_info", "/server_info", "/whatever"):
            assert (await bench.http.get(path)).content == b"there"


async def test_a_stopping_router_takes_no_new_requests():
    async with routing(answer()) as bench:
        bench.router._serving.is_stopping = True
        got = await bench.post()
        assert got.status_code == 503 and got.headers["x-not-admitted"] == "1"
        assert (await bench.http.get("/ready")).status_code == 503
        bench.router._serving.is_stopping = False
