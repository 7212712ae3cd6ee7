"""Names that dashboards look for, and labels that clients cannot choose."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from test.treadle.router.fake_replica import answer, reset_before_headers
from test.treadle.router.harness import Bench, routing
from treadle.router.metrics import known

GATEWAY = {  # of the SGLang gateway, with the labels that its dashboards use
    "smg_http_requests": {"method", "path"},
    "smg_http_responses": {"status_code", "error_code"},
    "smg_http_request_duration_seconds": {"method", "path"},
    "smg_http_connections_active": set(),
    "smg_router_ttft_seconds": set(),
    "smg_router_upstream_responses": {"worker", "status_code"},
    "smg_worker_pool_size": {"worker_type", "connection_mode", "model"},
    "smg_worker_requests_active": {"worker"},
    "smg_worker_health": {"worker"},
    "smg_worker_health_checks": {"worker", "result"},
    "smg_worker_selection": {"worker_type", "connection_mode", "model", "policy", "worker"},
    "smg_worker_errors": {"worker", "error_type"},
    "smg_worker_cb_state": {"worker"},
    "smg_worker_cb_transitions": {"worker"},
    "smg_worker_retry_backoff_seconds": set(),
    "smg_http_rate_limit": {"result"},
    "smg_router_request_duration_seconds": {"router_type", "backend_type", "connection_mode"},
    "smg_router_requests": {
        "router_type",
        "backend_type",
        "connection_mode",
        "model",
        "endpoint",
        "streaming",
    },  # fmt: skip
    "smg_worker_retries": {"worker", "reason"},
    "smg_manual_policy_cache_entries": set(),
}


async def scrape(bench: Bench) -> dict[str, tuple[set[str], dict[tuple[str, ...], float]]]:
    found = {}
    for family in text_string_to_metric_families(await bench.metrics()):
        labels = {label for s in family.samples for label in s.labels} - {"le"}
        values = {tuple(s.labels.values()): s.value for s in family.samples}
        found[family.name] = (labels, values)
    return found


async def test_gateway_names_are_there_after_a_few_requests():
    async with routing(reset_before_headers, answer()) as bench:
        names = [name for replica in bench.replicas for name in bench.sessions_of(replica, 4)]
        await asyncio.gather(*(bench.post(x_session_id=name) for name in names))
        found = await scrape(bench)
        for name, labels in GATEWAY.items():
            assert found[name][0] == labels, name
        for name in ("decisions", "load_tokens", "replicas", "requests"):
            assert f"treadle:router_{name}" in found
        answered = sum(found["smg_http_responses"][1].values())
        assert answered == 8
        assert found["smg_http_requests"][1][("POST", "/v1/chat/completions")] == 8
        assert found["treadle:router_load_tokens"][1] == {(r.url,): 0.0 for r in bench.replicas}


def test_paths_of_clients_are_no_labels():
    assert known("/generate") == "/generate"
    assert known("/secret/path") == "other"
