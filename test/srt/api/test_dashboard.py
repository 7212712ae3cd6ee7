"""The dashboard's data: the numbers of `/metrics`, one question for many, keys and names."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from prometheus_client.parser import text_string_to_metric_families

from test.serving import READY, Bench, FakeEngine, serving
from treadle.srt.api import dashboard
from treadle.srt.config import ApiSection, NetSection
from treadle.srt.messages import Stats
from treadle.srt.snapshot import (
    RequestView,
    SessionView,
    Snapshot,
    SnapshotRequest,
    TreeOutline,
)

COUNTERS = {"fresh_rows": 5.0, "replay_rows": 3.0, "evicted_pages{kind=leaf}": 2.0,
            "prefix_query_tokens": 40.0, "prefix_hit_tokens": 30.0}  # fmt: skip
GAUGES = {"running": 2.0, "waiting": 1.0, "pages{state=free}": 3.0, "pages{state=private}": 1.0,
          "window_slots{state=warm}": 2.0}  # fmt: skip
REQUEST = RequestView("rid-1", "agent", "running", 9, 8, 1, 4, 2, 1, 0.5)
SESSION = SessionView("agent", 1, 0, 3, 90, 60, 12, 9, 40, 39, 2, 1.5)
TREE = TreeOutline(16, 1, 4, *(array("i", pair) for pair in (
    [-1, 0], [0, 4], [0, 1], [0, 1], [1, 3], [0, 1], [0, 0],
)))  # fmt: skip
SNAPSHOT = Snapshot(0, COUNTERS, GAUGES, (REQUEST,), (SESSION,), TREE)


def questions(bench: Bench) -> int:
    return sum(isinstance(message, SnapshotRequest) for message in bench.engine.sent)


async def test_numbers_are_those_of_the_metrics_page():
    engine = FakeEngine(snapshot=SNAPSHOT, stats=Stats(0, COUNTERS, GAUGES))
    async with serving(engine) as bench:
        shown = (await bench.client.get("/dashboard/data")).json()["metrics"]
        text = (await bench.client.get("/metrics")).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [
                f"{k}={v}" for k, v in sample.labels.items()
                if k not in ("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank")
            ]  # fmt: skip
            found[sample.name + (f"{{{','.join(labels)}}}" if labels else "")] = sample.value
    assert shown.items() <= found.items()
    assert shown["treadle:evicted_pages_total{kind=leaf}"] == 2
    assert shown["sglang:cache_hit_rate"] == 0.75
    assert shown["treadle:ended_unconfirmed"] == 0


async def test_requests_sessions_and_tree_are_shown():
    async with serving(FakeEngine(snapshot=SNAPSHOT)) as bench:
        body = (await bench.client.get("/dashboard/data")).json()
    assert (body["model"], body["version"], body["page_size"]) == ("tiny", "1.2.3", 16)
    assert (body["requests"][0]["rid"], body["sessions"][0]["turns"]) == ("rid-1", 3)
    (box,) = body["tree"]["boxes"]
    assert (box["tokens"], box["approx"], box["pins"], box["hits"]) == (64, 1, 1, 3)


async def test_many_viewers_are_one_question(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dashboard, "FRESH_S", 3600.0)
    async with serving() as bench:
        await asyncio.gather(*(bench.client.get("/dashboard/data") for _ in range(5)))
        await bench.client.get("/dashboard/data")
        assert questions(bench) == 1
        monkeypatch.setattr(dashboard, "FRESH_S", 0.0)
        await bench.client.get("/dashboard/data")
        assert questions(bench) == 2


async def test_a_silent_or_absent_engine_is_a_503(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dashboard, "TIMEOUT_S", 0.01)
    async with serving(FakeEngine(is_silent=True)) as bench:
        for _ in range(2):
            answer = await bench.client.get("/dashboard/data")
            assert answer.status_code == 503
            assert "did not answer" in answer.json()["message"]
        assert questions(bench) == 1  # those who come meanwhile wait for the same answer
        bench.frontend.lose("gone")
        assert "gone" in (await bench.client.get("/dashboard/data")).json()["message"]


async def test_a_lost_question_is_asked_again():
    async with serving(is_ready=False) as bench:
        assert (await bench.client.get("/dashboard/data")).status_code == 503
        bench.engine.put(READY)
        await bench.frontend.serving.wait()
        assert (await bench.client.get("/dashboard/data")).status_code == 200


async def test_page_is_open_and_its_data_needs_the_key():
    async with serving(FakeEngine(snapshot=SNAPSHOT), NetSection(api_key="key")) as bench:
        page = await bench.client.get("/dashboard")
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert (await bench.client.get("/dashboard/data")).status_code == 401
        headers = {"authorization": "Bearer key"}
        answer = await bench.client.get("/dashboard/data", headers=headers)
        assert answer.json()["requests"][0]["rid"] == "rid-1"  # the one key there is may control


@pytest.mark.parametrize(
    ("key", "admin", "isolation", "is_named"),
    [
        ("key", "boss", "none", False),
        ("boss", "boss", "none", True),
        ("key", "", "per-key", False),  # the key of one tenant of several
        ("boss", "boss", "per-key", True),
    ],
)
async def test_names_are_for_who_may_control(key: str, admin: str, isolation: str, is_named: bool):
    net = NetSection(api_key="key")
    api = ApiSection(admin_api_key=admin, cache_isolation=isolation)
    async with serving(FakeEngine(snapshot=SNAPSHOT), net, api=api) as bench:
        answer = await bench.client.get("/dashboard/data", headers={"x-api-key": key})
        body = answer.json()
    names = [body["requests"][0]["rid"], body["requests"][0]["session"]]
    if is_named:
        assert names == ["rid-1", "agent"]
    else:
        assert "agent" not in answer.text
        assert "rid-1" not in answer.text
        assert names[1] == body["sessions"][0]["session"]
