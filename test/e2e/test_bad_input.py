"""Every kind of bad input at a whole server, while a good request is running in it.

One row per line of the table of errors: status, type, words and code that clients look for. The
good request's text is that of the same request alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from test.e2e.running import GOOD, Running, auth, held
from test.e2e.server import Server
from test.tiny import tiny_gemma3

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CHAT, TEXT, NATIVE, MESSAGES = (
    "/v1/chat/completions", "/v1/completions", "/generate", "/v1/messages",
)  # fmt: skip
CONTEXT_LEN, MAX_BODY_BYTES, VOCAB_SIZE = 256, 20_000, 320
HI = [{"role": "user", "content": "hi"}]
LONG = "loom " * CONTEXT_LEN
TOO_LONG = "context_length_exceeded"
BAD, MISSING, LATER = "BadRequestError", "NotFoundError", "NotImplementedError"


@dataclass(frozen=True)
class Row:
    """`key` None: no key is sent."""

    name: str
    path: str
    body: Any
    status: int
    kind: str
    words: str
    code: str | int | None = None
    key: str | None = "user"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


def chat(name: str, words: str, code: str | None = None, **fields: Any) -> Row:
    return Row(name, CHAT, {"messages": HI, **fields}, 400, BAD, words, code)


def native(name: str, words: str, *, of: dict[str, Any] | None = None, **sampling: Any) -> Row:
    body = {"text": "a", "sampling_params": sampling, **(of or {})}
    return Row(name, NATIVE, body, 400, BAD, words)


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
TOOL = {"type": "function", "function": {"name": "f"}}
ODD_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}
OTHER = {"type": "function", "function": {"name": "g"}}
FORM = {"content-type": "text/plain"}

ROWS = [
    Row("invalid JSON", CHAT, b"{", 400, BAD, "not valid JSON"),
    Row("content type", NATIVE, b"{}", 400, BAD, "text/plain", headers=FORM),
    Row("field type", TEXT, {"prompt": "a", "max_tokens": "9"}, 400, BAD, "max_tokens: Expected"),
    Row("no input", NATIVE, {}, 400, BAD, "text, input_ids and input_embeds"),
    native("two inputs", "text, input_ids and input_embeds", of={"input_ids": [1]}),
    native("batch lengths", "2 prompts", of={"text": ["a", "b"], "rid": ["x"]}),
    Row("empty prompt", TEXT, {"prompt": ""}, 400, BAD, "prompt must not be empty"),
    chat("empty messages", "messages must not be empty", messages=[]),
    Row("long prompt", TEXT, {"prompt": LONG}, 400, BAD, "context length", TOO_LONG),
    Row("long native prompt", NATIVE, {"text": LONG}, 400, BAD, "context length", TOO_LONG),
    chat("long chat", "context length", TOO_LONG, messages=[{"role": "user", "content": LONG}]),
    chat("long output", "context length", TOO_LONG, max_tokens=CONTEXT_LEN),
    native("temperature", "sampling_params.temperature must be at least 0", temperature=-1),
    chat("top_p", "top_p must be above 0", top_p=0),
    native("unknown key", "unknown field `topp`", topp=1),
    native("id in input_ids", "outside the vocabulary",
           of={"text": None, "input_ids": [VOCAB_SIZE]}),
    native("id in logit_bias", "vocabulary", logit_bias={str(VOCAB_SIZE): 1}),
    native("id in token_ids_logprob", "vocabulary",
           of={"return_logprob": True, "token_ids_logprob": [VOCAB_SIZE]}),
    chat("required without tools", "needs tools", tool_choice="required"),
    chat("unknown tool", "not among tools", tools=[TOOL], tool_choice=OTHER),
    chat("tool schema", "must be 'object'", tools=[ODD_TOOL]),
    chat("JSON schema missing", "json_schema.schema", response_format={"type": "json_schema"}),
    native("invalid regex", "regex", regex="(a"),
    native("invalid JSON schema", "schema", json_schema='{"type": "cloth"}'),
    native("invalid EBNF", "ebnf", ebnf="root ::= ("),
    native("conflicting grammars", "are both set", regex="a", ebnf='root ::= "a"'),
    chat("invalid schema of a format", "schema", response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "cloth"}}}),
    chat("conflicting formats", "are both set", regex="a", response_format={"type": "json_object"}),
    chat("template", "trust", chat_template="{{ x }}"),
    chat("continued nothing", "role assistant", continue_final_message=True),
    chat("image", "text only", messages=[IMAGE]),
    native("live rid", "belongs to a running request", of={"rid": "good"}),
    Row("adapter", NATIVE, {"text": "a", "lora_path": "x"}, 501, LATER, "lora_path"),
    Row("model", CHAT, {"messages": HI, "model": "x"}, 404, MISSING, "'x' does not exist",
        "model_not_found"),
    Row("model card", "/v1/models/x", None, 404, MISSING, "'x' does not exist",
        "model_not_found", method="GET"),
    Row("no embeddings", "/v1/embeddings", {"input": "a"}, 400, BAD, "no embeddings"),
    Row("route of later", "/v1/rerank", {}, 501, LATER, "/v1/rerank"),
    Row("no key", CHAT, {"messages": HI}, 401, "AuthenticationError", "key", key=None),
    Row("bad key", CHAT, {"messages": HI}, 401, "AuthenticationError", "key", key="x"),
    Row("user at admin's", "/flush_cache", {}, 403, "PermissionDeniedError", "admin key"),
    Row("large body", CHAT, b" " * (MAX_BODY_BYTES + 1), 413, "RequestEntityTooLargeError",
        f"larger than {MAX_BODY_BYTES} bytes"),
    Row("messages: no cap", MESSAGES, {"messages": HI}, 400, "invalid_request_error",
        "max_tokens must be given"),
    Row("messages: long", MESSAGES, {"messages": HI, "max_tokens": CONTEXT_LEN}, 400,
        "invalid_request_error", "context length"),
    Row("messages: model", MESSAGES, {"messages": HI, "max_tokens": 1, "model": "x"}, 404,
        "not_found_error", "'x' does not exist"),
    Row("messages: bad key", MESSAGES, {"messages": HI}, 401, "authentication_error", "key",
        key="x"),
]  # fmt: skip


@dataclass
class Served:
    server: Server
    http: httpx.Client
    alone: str  # the good request's text when nothing else runs


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("served")
    (folder / "model").mkdir()
    argv = {
        "--model-path": tiny_gemma3(folder / "model"), "--port": 0, "--served-model-name": "tiny",
        "--context-length": CONTEXT_LEN, "--max-body-bytes": MAX_BODY_BYTES, "--api-key": "user",
        "--admin-api-key": "admin", "--max-running-requests": 2, "--max-queued-requests": 1,
    }  # fmt: skip
    flat = [str(part) for pair in argv.items() for part in pair]
    server = Server(*flat, "--strict-model-name", "--disable-radix-cache")
    try:
        server.wait_until_serving()
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
            yield Served(server, http, Running(http).text())
    finally:
        server.close()


def send(http: httpx.Client, row: Row) -> httpx.Response:
    data = row.body if isinstance(row.body, bytes) else json.dumps(row.body).encode()
    headers = {"content-type": "application/json", **auth(row.key), **row.headers}
    return http.request(row.method, row.path, content=data, headers=headers)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_input_is_named_and_harms_nobody(served: Served, row: Row):
    running = Running(served.http)
    response = send(served.http, row)
    assert running.text() == served.alone
    assert response.status_code == row.status, response.text
    body = response.json()
    error = body if body["error"] == "Unauthorized" else body["error"]
    assert error["type"] == row.kind
    assert row.words in error["message"]
    if row.code is not None:
        assert error["code"] == body["code"] == row.code


def test_null_output_cap_is_cut_at_the_context(served: Served):
    body = {"text": "a", "sampling_params": {"max_new_tokens": None, "ignore_eos": True}}
    answer = served.http.post(NATIVE, json=body, headers=auth("user")).json()
    meta = answer["meta_info"]
    assert meta["prompt_tokens"] + meta["completion_tokens"] == CONTEXT_LEN


def test_full_queue_is_503_and_lets_the_others_end(served: Served):
    """One more runs, one waits, and the third is too many."""
    with ThreadPoolExecutor(3) as pool:
        with held(served.server, served.http, {}) as (running,):
            sent = [pool.submit(ask_more, served.http, f"more-{i}") for i in range(3)]
            refused, waiting = wait(sent, return_when=FIRST_COMPLETED)
            (full,) = (future.result() for future in refused)
        assert full.status_code == 503
        assert "queue is full" in full.json()["error"]["message"]
        assert int(full.headers["retry-after"]) > 0
        assert running.text() == served.alone
        ended = [future.result() for future in waiting]
    assert [answer.json()["text"] for answer in ended] == [served.alone] * 2


def ask_more(http: httpx.Client, rid: str) -> httpx.Response:
    body = {**GOOD, "stream": False, "rid": rid}
    return http.post(NATIVE, json=body, headers=auth("user"))


def test_user_abort_is_200_with_its_reason(served: Served):
    with held(served.server, served.http, {}, {"rid": "mine"}) as (running, other):
        asked = served.http.post("/abort_request", json={"rid": "mine"}, headers=auth("user"))
        assert asked.json()["num_aborted"] == 1
    assert other.last()["meta_info"]["finish_reason"]["type"] == "abort"
    assert running.text() == served.alone
