"""Control calls reach every replica, aborts the right one (rule A22)."""

from __future__ import annotations

import asyncio

import orjson

from test.treadle.router.fake_replica import Script, Seen, Wire, answer, hang
from test.treadle.router.harness import routing, until


async def obeying(seen: Seen, wire: Wire) -> None:
    if seen.path.startswith("/abort_request"):
        await answer(200, b'{"success": true, "num_aborted": 1}')(seen, wire)
    elif seen.path.startswith("/flush_cache"):
        await answer(200, b"Cache flushed.\n")(seen, wire)
    else:
        await hang(seen, wire)


async def test_a_flush_goes_to_all_and_is_never_repeated():
    async with routing(obeying, obeying, answer(400, b"requests run")) as bench:
        got = await bench.http.post("/flush_cache?timeout=3", headers={"authorization": "Bearer k"})
        assert got.status_code == 400
        results = got.json()["results"]
        assert [r["status"] for r in results] == [200, 200, 400]
        assert results[0]["body"] == "Cache flushed.\n"
        for replica in bench.replicas:
            (seen,) = replica.seen
            assert seen.path == "/flush_cache?timeout=3"
            assert seen.headers["authorization"] == "Bearer k"
        await bench.replicas[2].stop()
        got = await bench.http.post("/flush_cache")
        assert got.status_code == 502 and got.json()["results"][2]["status"] == 0


async def test_an_abort_goes_where_the_request_is():
    async with routing(obeying, obeying) as bench:
        _, writer = await bench.send_raw(b'{"rid": "r"}')
        await until(lambda: any(r.seen for r in bench.replicas))
        (home,) = [r for r in bench.replicas if r.seen]
        got = await bench.http.post("/abort_request", json={"rid": "r"})
        assert got.json() == {"success": True, "num_aborted": 1}
        assert [s.path for s in home.seen] == ["/generate", "/abort_request"]
        assert not bench.others(home.url)[0].seen
        writer.close()


async def test_an_unknown_id_and_a_prefix_go_to_all():
    async with routing(obeying, obeying) as bench:
        for body in ({"rid": "other"}, {"rid": "r", "prefix": True}, {"abort_all": True}):
            got = await bench.http.post("/abort_request", json=body)
            assert got.json() == {"success": True, "num_aborted": 2}
            assert [orjson.loads(r.seen[-1].body) for r in bench.replicas] == [body, body]
        got = await bench.http.post("/abort_request", json={})
        assert got.status_code == 400 and got.json()["param"] == "rid"


async def test_an_abort_that_a_replica_forbids_is_not_a_success():
    async with routing(answer(403)) as bench:
        got = await bench.http.post("/abort_request", json={"abort_all": True})
        assert got.status_code == 403 and not got.json()["success"]


async def test_a_request_that_waits_here_is_aborted_here():
    limits = {"max_concurrent": 1, "queue_size": 5}
    async with routing(obeying, limits=limits) as bench:
        _, writer = await bench.send_raw(b'{"rid": "first"}')
        await until(lambda: bool(bench.replicas[0].seen))
        waiting = asyncio.create_task(bench.post("/generate", {"rid": "second"}))
        await until(lambda: bench.router._inflight.find("second") is not None)
        got = await bench.http.post("/abort_request", json={"rid": "second"})
        assert got.json()["num_aborted"] == 1
        assert (await waiting).status_code == 499
        assert len(bench.replicas[0].seen) == 1
        writer.close()


async def test_loads_of_all():
    async with routing(answer(), answer()) as bench:
        bench.replicas[0].load = {"num_running_reqs": 1}
        got = (await bench.http.get("/get_loads")).json()
        assert got["results"][0]["body"] == {"loads": [{"num_running_reqs": 1}]}
        assert got["results"][1]["status"] == 404


def serving(*names: str, **fields: object) -> Script:
    cards = [{"id": name, **fields} for name in names]
    return answer(200, orjson.dumps({"object": "list", "data": cards}))


async def test_models_of_all_ready_replicas_are_listed_once():
    async with routing(serving("a", "b", root="x"), serving("b", "c"), answer(500)) as bench:
        headers = {"authorization": "Bearer k"}
        got = await bench.http.get("/v1/models", headers=headers)
        assert got.json()["object"] == "list"
        assert [card["id"] for card in got.json()["data"]] == ["a", "b", "c"]
        assert got.json()["data"][1]["root"] == "x"
        assert bench.replicas[1].seen[0].headers["authorization"] == "Bearer k"
        bench.router._replicas.dismiss(bench.replicas[0].url, 0.0)
        got = await bench.http.get("/v1/models")
        assert [card["id"] for card in got.json()["data"]] == ["b", "c"]


async def test_models_are_refused_as_the_replicas_refuse_them():
    async with routing(answer(401, b'{"error": "key"}'), answer(401, b'{"error": "key"}')) as bench:
        got = await bench.http.get("/v1/models")
        assert (got.status_code, got.json()) == (401, {"error": "key"})
        for replica in bench.replicas:
            await replica.stop()
        assert (await bench.http.get("/v1/models")).status_code == 503
