"""Grammars through a whole server. A random model is the best fuzzer: it takes any allowed path."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from test.e2e.conftest import StartServer
from test.e2e.server import Server
from test.e2e.streams import iter_lines
from test.tiny import tiny_gemma3

pytestmark = pytest.mark.e2e

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        "nested": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "score": {"type": ["number", "null"]}},
            "required": ["ok", "score"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "tags", "nested"],
    "additionalProperties": False,
}
NUMBERS = 'root ::= number (", " number){2}\nnumber ::= [1-9] [0-9]?'
PROMPT = "One person as JSON:"


def post(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=120)


def generate(server: Server, seed: int, limit: int = 150, **sampling: Any) -> dict[str, Any]:
    params = {"max_new_tokens": limit, "sampling_seed": seed, "temperature": 1.0} | sampling
    response = post(server, "/generate", {"text": PROMPT, "sampling_params": params})
    assert response.status_code == 200, response.text
    return response.json()


def check_person(text: str) -> None:
    person = json.loads(text)
    assert list(person) == ["name", "age", "tags", "nested"]
    assert isinstance(person["name"], str)
    assert len(person["name"]) <= 12
    assert 0 <= person["age"] <= 150
    assert set(person["tags"]) <= {"red", "green"}
    assert isinstance(person["nested"]["ok"], bool)


def check_kinds(server: Server) -> None:
    schema = json.dumps(SCHEMA)
    for seed in range(4):
        answer = generate(server, seed, json_schema=schema)
        # A number has no end that the grammar would force.
        if answer["meta_info"]["finish_reason"]["type"] == "stop":
            check_person(answer["text"])
        assert re.fullmatch(
            "[a-f]{3}-(x|yz)", generate(server, seed, regex="[a-f]{3}-(x|yz)")["text"]
        )
        numbers = generate(server, seed, ebnf=NUMBERS)["text"]
        assert re.fullmatch(r"[1-9][0-9]?(, [1-9][0-9]?){2}", numbers)
    choices = {"choice": ["north", "south", "northeast"]}
    body = {"prompt": PROMPT, "n": 4, "max_tokens": 60, "structured_outputs": choices}
    response = post(server, "/v1/completions", body)
    assert {c["text"] for c in response.json()["choices"]} <= set(choices["choice"])


def check_neighbours(server: Server) -> None:
    """Texts beside grammars are those of a quiet server, streamed ones too."""
    stream = {"prompt": PROMPT, "max_tokens": 60, "seed": 3, "stream": True, "temperature": 1.0}

    def streamed() -> str:
        with httpx.stream("POST", server.url + "/v1/completions", json=stream, timeout=120) as r:
            lines = [line[6:] for line in iter_lines(r) if line.startswith("data: {")]
        return "".join(json.loads(line)["choices"][0]["text"] for line in lines)

    alone = streamed()
    with ThreadPoolExecutor(6) as threads:
        texts = [threads.submit(streamed) for _ in range(2)]
        forms = [threads.submit(generate, server, i, json_schema=SCHEMA) for i in range(4)]
        refused = (
            threads.submit(post, server, "/generate", bad("(")),
            threads.submit(
                post,
                server,
                "/v1/completions",
                {"prompt": "a", "stream": True, "guided_regex": "["},
            ),
        )
        assert [text.result() for text in texts] == [alone, alone]
        again = [form.result()["text"] for form in forms]
        assert [r.result().status_code for r in refused] == [400, 400]
    assert again == [generate(server, i, json_schema=SCHEMA)["text"] for i in range(4)]


def bad(regex: str) -> dict[str, Any]:
    return {"text": "a", "sampling_params": {"regex": regex}}


def check_forcing(server: Server) -> None:
    """With logprobs nothing is forced; rows have the same bits in any step, so neither has an
    effect on the text of a greedy answer."""
    params = {"max_new_tokens": 120, "temperature": 0, "json_schema": SCHEMA}
    body = {"text": PROMPT, "sampling_params": params}
    forced = post(server, "/generate", body).json()
    sampled = post(server, "/generate", {**body, "return_logprob": True}).json()
    assert forced["output_ids"] == sampled["output_ids"]
    assert forced["meta_info"]["completion_tokens"] == len(forced["output_ids"])


def check_metrics(server: Server) -> None:
    text = httpx.get(server.url + "/metrics", timeout=60).text
    found = re.search(r"^sglang:num_so_requests_total(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > 20
    assert re.search(r"^sglang:num_grammar_queue_reqs(?:\{.*\})? 0\.0$", text, re.MULTILINE)


def check_all(server: Server) -> None:
    check_kinds(server)
    check_neighbours(server)
    check_forcing(server)
    check_metrics(server)


def test_any_path_of_a_random_model_is_an_answer_of_its_grammar(serve: StartServer, tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    check_all(serve(str(tiny_gemma3(folder)), "--kv-cache-memory", "64M"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_model_answers_in_its_grammar(serve: StartServer):
    """A random model goes more ways; this one wants to end, and writes what is likely."""
    server = serve("demo:smollm2-135m", "--kv-cache-memory", "256M")
    check_forcing(server)
    body = {
        "messages": [{"role": "user", "content": "Invent a person. Answer in JSON."}],
        "max_tokens": 120,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}},
    }
    answer = post(server, "/v1/chat/completions", body).json()
    check_person(answer["choices"][0]["message"]["content"])
