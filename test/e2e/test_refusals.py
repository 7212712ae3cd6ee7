"""Refusals that are the server's state rather than the request's fault, at a whole server.

With `test_bad_input.py` every line of the table of errors. The good request that runs meanwhile
has the text that it has alone.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from test.e2e.conftest import StartServer
from test.e2e.prometheus import total
from test.e2e.running import GOOD, Running, held
from test.e2e.server import Server
from test.tiny import tiny_llama

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

POISON = 319  # an id that no text of these tests is made of
QUEUE_S, LIMIT_S = 1.0, 2.0
LONG = {**GOOD["sampling_params"], "max_new_tokens": 480}
BUSY, LOST = "ServiceUnavailableError", "InternalServerError"
ROUTES: dict[str, dict[str, object]] = {
    "/generate": {"text": "a"},
    "/v1/completions": {"prompt": "a"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
}


@dataclass
class Served:
    server: Server
    http: httpx.Client
    alone: str  # the good request's text when nothing else runs


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sound but for the embedding of one id."""
    folder: Path = tiny_llama(tmp_path_factory.mktemp("model"))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][POISON] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def served(serve_module: StartServer, model: str) -> Iterator[Served]:
    server = serve_module(
        model, "--max-running-requests", "1", "--queue-timeout", str(QUEUE_S),
        "--disable-radix-cache",
    )  # fmt: skip
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
        yield Served(server, http, Running(http).text())


def check(response: httpx.Response, status: int, kind: str, words: str) -> None:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["type"] == kind
    assert re.search(words, error["message"]), error


def test_starting_and_draining_servers_are_503_and_what_runs_ends(model: str):
    server = Server("--model-path", model, "--port", "0")
    try:
        server.wait_until_listening()
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
            with server.held():
                for path, body in ROUTES.items():
                    check(http.post(path, json=body), 503, BUSY, "is starting")
            server.wait_until_serving()
            with held(server, http, {}) as (running,):
                server.process.send_signal(signal.SIGTERM)
                while http.get("/health").status_code == 200:
                    pass
                for path, body in ROUTES.items():
                    refused = http.post(path, json=body)
                    check(refused, 503, BUSY, "is draining")
                    assert refused.headers["x-not-admitted"] == "1"
            assert running.last()["meta_info"]["finish_reason"]["type"] == "length"
        assert server.finish() == 0
        assert server.orphans() == []
    finally:
        server.close()


def test_request_that_waits_too_long_is_503(served: Served):
    with held(served.server, served.http, {}) as (running,):
        late = served.http.post("/generate", json={"text": "a"})
        check(late, 503, BUSY, f"still waited in the queue after its limit of {QUEUE_S:g} seconds")
        assert late.headers["retry-after"]
    assert running.text() == served.alone


def test_deadline_of_a_waiting_request_is_503(served: Served):
    with held(served.server, served.http, {}) as (running,):
        late = served.http.post("/generate", json={"text": "a", "deadline_s": 0.1})
        check(late, 503, BUSY, r"still waited in the queue after its limit of 0\.1 seconds")
    assert running.text() == served.alone


def test_deadline_of_a_running_request_ends_its_stream_with_the_error(served: Served):
    limited = {"deadline_s": LIMIT_S, "sampling_params": LONG}
    with held(served.server, served.http, limited) as (running,):
        over = time.monotonic() + 1.1 * LIMIT_S
        while time.monotonic() < over:
            assert served.http.get("/health").status_code == 200
    error = running.last()["error"]
    assert error["type"] == BUSY
    assert f"was not done after its limit of {LIMIT_S:g} seconds" in error["message"]
    assert Running(served.http).text() == served.alone


def test_logits_that_are_not_finite_are_500_with_an_id_of_the_log(served: Served):
    body: dict[str, Any] = {"input_ids": [9, POISON], "sampling_params": {"max_new_tokens": 2}}
    failed = served.http.post("/generate", json=body)
    check(failed, 500, LOST, "internal error; the log has it under id [0-9a-f]{32}")
    assert "Traceback" not in failed.text
    assert Running(served.http).text() == served.alone


def test_requests_that_do_not_fit_together_are_preempted_and_all_answered(
    serve: StartServer, model: str
):
    """The device has room for one of them (the last line of the table): nothing is lost."""
    pool = ("--max-total-tokens", "528", "--max-running-requests", "2", "--disable-radix-cache")
    server = serve(model, *pool)
    sampling = {**LONG, "logit_bias": {str(POISON): -100}}
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
        alone = Running(http, sampling_params=sampling).last()
        both = [Running(http, rid=f"r{i}", sampling_params=sampling) for i in range(2)]
        for last in (running.last() for running in both):
            assert last["text"] == alone["text"]
            assert last["meta_info"]["completion_tokens"] == LONG["max_new_tokens"]
        assert total(http.get("/metrics").text, "treadle:preemptions_total") > 0
