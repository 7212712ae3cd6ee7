"""Every row of `surface.yaml`, the list of what clients of a first release rely on, holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from test.serving import CONTEXT_LEN, Answer, Bench, FakeEngine, echo_reply, refuse, serving
from test.srt.sched.conftest import Loop, Setup
from treadle.command_line import parse_command_line
from treadle.flags.foreign import FOREIGN
from treadle.flags.table import SECTIONS
from treadle.srt.config import NetSection, ServerConfig
from treadle.srt.messages import Stats

SURFACE = yaml.safe_load((Path(__file__).parent / "surface.yaml").read_text())
Row = dict[str, Any]
FLAGS = [*(flag for _, flags in SECTIONS for flag in flags), *FOREIGN]
FIELDS = [(route, row) for route, rows in SURFACE["fields"].items() for row in rows]
PLAIN: dict[str, Row] = {
    "/generate": {"text": "a"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [97]},
    "/v1/messages": {"max_tokens": 3, "messages": [{"role": "user", "content": "a"}]},
}


def name_of(row: Row | str) -> str:
    if isinstance(row, str):
        return row
    return str(next(row[key] for key in ("kind", "name", "path", "role") if key in row))


def config_field(config: ServerConfig, path: str) -> object:
    section, name = path.split(".")
    return getattr(getattr(config, section), name)


@pytest.mark.parametrize("row", SURFACE["flags"], ids=name_of)
def test_flag_parses_and_its_default_is_the_documented_one(row: Row):  # C13
    for spelling in (row["name"], *row.get("aliases", ())):
        assert any(spelling in (*flag.spellings, flag.negation) for flag in FLAGS), spelling
        value = [row["value"]] if "value" in row else []
        line = parse_command_line([spelling, *value], {}, program="treadle")
        flag = next(f for f in FLAGS if spelling in (*f.spellings, f.negation))
        silent = not flag.field and not flag.harmless
        assert bool(line.notices) == silent  # without a field it is told that nothing happens
    if "of" in row:
        assert config_field(ServerConfig(), row["of"]) == row["default"]


@pytest.mark.parametrize("row", SURFACE["routes"], ids=name_of)
async def test_route_answers_with_its_members(row: Row):
    async with serving() as bench:
        for method in row["methods"]:
            body = {"json": row["body"]} if "body" in row else {}
            answer = await bench.client.request(method, row["path"], **body)
            if row.get("pending") and answer.status_code == 501:
                continue
            assert answer.status_code == 200, answer.text
            for key in row.get("keys", ()):
                value = orjson.loads(answer.content)
                for part in key.split("."):
                    value = value[int(part) if isinstance(value, list) else part]


@pytest.mark.parametrize(("route", "row"), FIELDS, ids=name_of)
async def test_field_is_accepted_and_null_means_its_default(route: str, row: Row):
    async with serving(context_len=2000) as bench:
        plain = PLAIN[route]
        body = {**plain, **row.get("with", {}), row["name"]: row["value"]}
        answer = await bench.post(route, body)
        is_pending = row.get("pending") and answer.status_code == 501
        assert answer.status_code == 200 or is_pending, answer.text
        body[row["name"]] = None
        if row.get("with") and "text" not in row["with"] and "prompt" not in row["with"]:
            answer = await bench.post(route, body)
            assert answer.status_code == row.get("null", 200), answer.text
        if row["name"] not in plain:
            answer = await bench.post(route, {**plain, row["name"]: None})
            assert answer.status_code == 200, answer.text
        elif "null" in row:
            answer = await bench.post(route, body)
            assert answer.status_code == row["null"]


@pytest.mark.parametrize("row", SURFACE["errors"], ids=name_of)
async def test_bad_input_has_its_status_and_words(row: Row):  # C8
    script: Answer = echo_reply
    if "engine" in row:
        script = refuse(row.get("engine_status", 503), row["engine"], was_admitted=False)
    net = NetSection(api_key=row.get("key", ""), max_body_bytes=2000)
    engine = FakeEngine(script=script)
    async with serving(engine, net, is_ready=row.get("is_ready", True)) as bench:
        body = row.get("body", {})
        if body.get("input_ids") == "LONG":
            body = {"input_ids": [1] * CONTEXT_LEN}
        data = {"HUGE": b" " * 2001}.get(row.get("raw", ""), row.get("raw", "").encode())
        answer = await bench.client.request(
            row.get("method", "POST"), row["path"], content=data or orjson.dumps(body)
        )
        assert answer.status_code == row["status"], answer.text
        error = answer.json()
        assert error["object"] == "error"
        assert {"message", "type", "param", "code"} <= set(error)  # D4
        assert error["error"] == "Unauthorized" or error["error"]["message"] == error["message"]
        assert row.get("words", "") in error["message"]
        assert error["param"] == row.get("param", error["param"])
        assert error["code"] == row.get("code", error["code"])
        assert set(row.get("headers", ())) <= set(answer.headers)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as served:
        yield served


@pytest.mark.parametrize("row", SURFACE["roles"], ids=name_of)
async def test_role_is_accepted(bench: Bench, row: Row):
    answer = await bench.post("/v1/chat/completions", {"messages": [row]})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("row", SURFACE["sampling"], ids=name_of)
async def test_sampling_parameter_has_its_range(bench: Bench, row: Row):
    for kind, status in (("good", 200), ("bad", 400)):
        for value in row.get(kind, ()):
            body = {"text": "a", "sampling_params": {row["name"]: value}}
            answer = await bench.post("/generate", body)
            is_pending = row.get("pending") and answer.status_code == 501
            assert answer.status_code == status or is_pending, (value, answer.text)
            if status == 400:
                assert row["name"] in answer.json()["message"]


@pytest.mark.parametrize("row", SURFACE["headers"], ids=name_of)
async def test_header_is_honoured(row: Row):
    key = "key" if row["does"] == "opens" else ""
    async with serving(net=NetSection(api_key=key)) as bench:
        name, value = row["name"], row["value"]
        answer = await bench.client.post("/generate", json={"text": "a"}, headers={name: value})
        assert answer.status_code == 200
        if row["does"] == "echoed":
            assert answer.headers[name] == value
        if row["does"] == "session":
            assert bench.engine.requests[0].session == value


@cache
def scheduler_stats() -> Stats:
    """Of a real scheduler that has served a request of a model with window layers."""
    loop = Loop(Setup(windows=2))
    loop.add("a", range(20))
    loop.drain()
    counters, gauges = loop.scheduler.stats()
    return Stats(0, counters, gauges | {"gen_throughput": 1.0})


async def scrape() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of every metric after one request, by name."""
    async with serving(FakeEngine(stats=replace(scheduler_stats()))) as bench:
        await bench.post("/generate", {"text": "a", "stream": True})
        text = (await bench.client.get("/metrics")).text
    found = {}
    for family in text_string_to_metric_families(text):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name] = (family.type, labels)
    return found


@pytest.mark.parametrize("row", SURFACE["metrics"], ids=name_of)
async def test_metric_is_there_with_type_and_labels(row: Row):  # C10
    found = await scrape()
    kind, labels = found["sglang:" + row["name"]]
    assert kind == row["type"]
    expected = set(row.get("labels", ()))
    expected |= {"model_name", "engine_type"} if row.get("common", True) else set()
    expected |= {"tp_rank", "pp_rank", "moe_ep_rank"} if row.get("ranks") else set()
    assert labels == expected
