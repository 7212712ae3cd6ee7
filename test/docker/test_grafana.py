"""Every metric and label that the Grafana board asks for is exported by a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.parser import text_string_to_metric_families

from test.serving import FakeEngine, serving
from test.test_surface import scheduler_stats
from treadle.srt.messages import Stats

BOARD: dict[str, Any] = orjson.loads(
    (Path(__file__).parents[2] / "docker" / "grafana.json").read_bytes()
)
NAME = re.compile(r"(?:sglang|treadle):\w+")
SCRAPED = {"instance"}  # labels that Prometheus itself adds
OF_THE_LOOP = {"steps": 3.0, "forward_seconds": 0.5, "cache_invariant_failures": 0.0}


def expressions() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


async def exported() -> dict[str, set[str]]:
    """Labels of every sample by its name, after one request."""
    stats = scheduler_stats()
    engine = FakeEngine(stats=Stats(0, stats.counters | OF_THE_LOOP, stats.gauges))
    async with serving(engine) as bench:
        await bench.post("/generate", {"text": "a", "stream": True})
        text = (await bench.client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


async def test_every_metric_and_label_is_exported():
    found = await exported()
    assert len(expressions()) > 20
    for expression in expressions():
        names = NAME.findall(expression)
        assert names
        known: set[str] = set(SCRAPED)
        for name in names:
            assert name in found, name
            known |= found[name]
        selected = set(re.findall(r"(\w+)=~?\"", expression))
        groups = re.findall(r"by \(([^)]*)\)", expression)
        grouped = {label for group in groups for label in group.split(", ")}
        assert selected | grouped <= known, expression


async def test_variables_are_of_exported_labels():
    found = await exported()
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            (name,) = NAME.findall(variable["query"])
            label = re.findall(r", (\w+)\)$", variable["query"])[0]
            assert label in found[name] | SCRAPED


def test_counters_are_rated_and_panels_do_not_overlap():
    for expression in expressions():
        rated = re.findall(r"rate\(((?:sglang|treadle):\w+)", expression)
        for name in NAME.findall(expression):
            is_count = name.endswith(("_total", "_bucket"))
            assert (name in rated) == is_count or name.endswith("cache_invariant_failures_total")
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]]
    assert len(set(places)) == len(places)
