"""Drafts through a whole server: equal greedy answers, grammars, streams, and what metrics say."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from test.e2e.conftest import StartServer
from test.e2e.prometheus import total
from test.e2e.server import Server
from test.v41 import CHECKPOINTS

pytestmark = pytest.mark.e2e

MODEL = str(CHECKPOINTS / "v41-mini")
FLAGS = ("--page-size", "16", "--max-running-requests", "4", "--kv-cache-memory", "64M")
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["ann", "bob"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TEXT = "The history of the harbour is long. " * 12


def generate(server: Server, text: str, **sampling: Any) -> dict[str, Any]:
    params = {"max_new_tokens": 24, "temperature": 0} | sampling
    body = {"text": text, "sampling_params": params, "return_logprob": True}
    response = httpx.post(server.url + "/generate", json=body, timeout=120)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_answers_are_those_without_drafts_and_metrics_count_them(serve: StartServer):
    plain = serve(MODEL, *FLAGS)
    spec = serve(MODEL, *FLAGS, "--speculative-algorithm", "dspark")
    schema = json.dumps(PERSON)
    for text in (TEXT, TEXT, TEXT + "What is", "Once upon a time"):
        for sampling in ({}, {"json_schema": schema}, {"max_new_tokens": 3}, {"stop": ["is"]}):
            one, two = (generate(server, text, **sampling) for server in (plain, spec))
            assert two["output_ids"] == one["output_ids"]
            assert two["meta_info"]["finish_reason"] == one["meta_info"]["finish_reason"]
            logprobs = [x["meta_info"]["output_token_logprobs"] for x in (one, two)]
            assert logprobs[0] == logprobs[1]
    metrics = httpx.get(spec.url + "/metrics").text
    assert total(metrics, "treadle:spec_verify_spans_total") > 0
    assert 1.0 <= total(metrics, "sglang:spec_accept_length") <= 6.0
    state = httpx.get(spec.url + "/server_info").json()["internal_states"][0]
    assert state["avg_spec_accept_length"] >= 1.0
    assert total(httpx.get(plain.url + "/metrics").text, "sglang:spec_accept_length") == 1.0
