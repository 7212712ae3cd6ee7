"""Drafts through a whole server: equal greedy answers, grammars, streams, and what metrics say."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from test.e2e.conftest import StartServer
from test.e2e.prometheus import total
from test.e2e.server import Server
from test.e2e.streams import iter_lines
from test.v41 import CHECKPOINTS, golden
from treadle.srt.sched.lookup import with_lookup
from treadle.srt.worker.drafter import SURE

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


@pytest.fixture(scope="module")
def spec(serve_module: StartServer) -> Server:
    return serve_module(MODEL, *FLAGS, "--speculative-algorithm", "dspark")


def generate(server: Server, text: str, **sampling: Any) -> dict[str, Any]:
    params = {"max_new_tokens": 24, "temperature": 0} | sampling
    body = {"text": text, "sampling_params": params, "return_logprob": True}
    response = httpx.post(server.url + "/generate", json=body, timeout=120)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_answers_are_those_without_drafts_and_metrics_count_them(serve: StartServer, spec: Server):
    plain = serve(MODEL, *FLAGS)
    schema = json.dumps(PERSON)
    for text in (TEXT, TEXT, TEXT + "What is", "Once upon a time"):
        for sampling in ({}, {"json_schema": schema}, {"max_new_tokens": 3}, {"stop": ["is"]}):
            one, two = (generate(server, text, **sampling) for server in (plain, spec))
            assert two["output_ids"] == one["output_ids"]
            assert two["meta_info"]["finish_reason"] == one["meta_info"]["finish_reason"]
            logprobs = [x["meta_info"]["output_token_logprobs"] for x in (one, two)]
            assert logprobs[0] == logprobs[1]
    metrics = httpx.get(spec.url + "/metrics", timeout=60).text
    assert total(metrics, "treadle:spec_verify_spans_total") > 0
    assert 1.0 <= total(metrics, "sglang:spec_accept_length") <= 6.0
    state = httpx.get(spec.url + "/server_info", timeout=60).json()["internal_states"][0]
    assert state["avg_spec_accept_length"] >= 1.0
    assert (
        total(httpx.get(plain.url + "/metrics", timeout=60).text, "sglang:spec_accept_length")
        == 1.0
    )


@pytest.mark.parametrize("case", ["dspark_agent", "dspark_text"])
def test_served_steps_accept_what_the_expected_drafts_come_to(spec: Server, case: str):
    """Each event of a stream is a step: the accepted drafts and one more token. Up to the first
    step that looks something else up, anchors are the expected ones."""
    expected = golden("v41-mini", case)
    prompt, output = expected["ids"].tolist(), expected["output"].tolist()
    assert output == expected["plain_greedy"].tolist()
    steps = streamed_steps(spec, prompt, len(output))
    assert [token for step in steps for token in step] == output
    known, compared = 1, 0
    for drafts, sure, accepted in zip(
        expected["drafts"].tolist(), expected["confidence"], expected["accepted"].tolist(),
        strict=True,
    ):  # fmt: skip
        tokens = array("i", [*prompt, *output[:known]])
        fed = with_lookup(tokens, drafts, int((sure >= SURE).cumprod(0).sum()))
        count = agreeing(fed[: len(output) - known - 1], output[known:])
        compared += 1
        assert len(steps[compared]) == count + 1
        known += count + 1
        if count != accepted or known >= len(output):
            break
    assert compared > 1


def streamed_steps(server: Server, prompt: list[int], max_new_tokens: int) -> list[list[int]]:
    sampling = {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}
    body = {"input_ids": prompt, "sampling_params": sampling, "stream": True}
    ids: list[int] = []
    steps = []
    with httpx.stream("POST", server.url + "/generate", json=body, timeout=120) as response:
        for line in iter_lines(response):
            if line and line != "data: [DONE]":
                found = json.loads(line.removeprefix("data: "))["output_ids"]
                steps.append(found[len(ids) :])
                ids = found
    return [step for step in steps if step]


def agreeing(drafts: Sequence[int], tokens: Sequence[int]) -> int:
    """How many of the first are alike."""
    pairs = zip(drafts, tokens, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(drafts), len(tokens)))
