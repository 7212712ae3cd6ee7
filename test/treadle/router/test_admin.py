"""Workers are listed, added, changed and drained (rule A13)."""

from __future__ import annotations

from test.treadle.router.fake_replica import FakeReplica, answer
from test.treadle.router.harness import routing, until


async def test_a_worker_is_added_ready_and_removed():
    async with routing(answer(200, b"first")) as bench:
        added = await FakeReplica(answer(200, b"second")).start()
        bench.replicas.append(added)
        got = await bench.http.post("/workers", json={"url": added.url, "labels": {"zone": "x"}})
        assert got.status_code == 202
        place = got.headers["location"]
        assert place == f"/workers/{got.json()['worker_id']}"
        shown = (await bench.http.get(place)).json()
        assert (shown["status"], shown["labels"]) == ("starting", {"zone": "x"})
        await bench.probe()
        listed = (await bench.http.get("/workers")).json()
        assert listed["total"] == 2 and listed["stats"]["regular_count"] == 2
        assert [w["is_healthy"] for w in listed["workers"]] == [True, True]
        assert {"id", "url", "model_id", "priority", "cost", "worker_type", "load",
                "connection_mode", "status"} <= set(listed["workers"][0])  # fmt: skip
        assert (await bench.http.delete(f"/workers/{bench.replicas[0].url}")).status_code == 202
        await until(lambda: len(bench.router._replicas) == 1)
        assert (await bench.post()).content == b"second"
        assert (await bench.http.get(place)).status_code == 200
        assert (await bench.http.post(f"{place}/drain")).status_code == 202
        await until(lambda: len(bench.router._replicas) == 0)
        assert (await bench.http.get(place)).status_code == 404


async def test_a_worker_is_changed():
    async with routing(answer()) as bench:
        place = f"/workers/{bench.replicas[0].url}"
        got = await bench.http.put(place, json={"labels": {"a": "1"}, "api_key": "k"})
        assert got.json()["labels"] == {"a": "1"}
        assert bench.router._replicas.get(bench.replicas[0].url).api_key == "k"
        assert (await bench.http.put(place, json={"url": "http://other:1"})).status_code == 400


async def test_bad_and_foreign_fields_are_refused_by_name():
    async with routing(answer()) as bench:
        url = bench.replicas[0].url
        for body, status, param in (
            ({}, 400, "url"),
            ({"url": "ftp://x"}, 400, "url"),
            ({"url": url, "worker_type": "prefill"}, 501, "worker_type"),
            ({"url": url, "priority": 1}, 501, "priority"),
            ({"url": url, "nonsense": 1}, 400, "nonsense"),
            ({"url": url, "labels": 3}, 400, "labels"),
            ({"url": url, "api_key": 3}, 400, "api_key"),
        ):
            got = await bench.http.post("/workers", json=body)
            assert (got.status_code, got.json()["param"]) == (status, param)
        assert (await bench.http.post("/workers", content=b"{")).status_code == 400
        full = {"url": url, "worker_type": "regular", "priority": 50, "cost": 1.0}
        assert (await bench.http.post("/workers", json=full)).status_code == 202


async def test_older_spellings():
    async with routing(answer()) as bench:
        url = bench.replicas[0].url
        assert (await bench.http.get("/list_workers")).json() == {"urls": [url]}
        assert (await bench.http.post("/add_worker?url=http://x:1")).status_code == 202
        assert (await bench.http.post("/remove_worker?url=http://x:1")).status_code == 202
        await until(lambda: len(bench.router._replicas) == 1)
        assert (await bench.http.post("/remove_worker?url=http://x:1")).status_code == 404
