"""Fields that ask for a form: every spelling, conflicts, and refusals before any token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from test.serving import Bench, serving
from treadle.srt.config import ModelSection
from treadle.srt.messages import GenerateRequest
from treadle.srt.token_masks import Grammar, GrammarKind

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
BAD = {"type": "strin"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
JSON, REGEX, EBNF = GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.EBNF
ROOT = 'root ::= "a" | "b"'


def schema_format(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def sent(bench: Bench) -> Grammar | None:
    """Of the last request that the scheduler got."""
    requests = [m for m in bench.engine.sent if isinstance(m, GenerateRequest)]
    return requests[-1].sampling.grammar


OPENAI: list[tuple[dict[str, Any], GrammarKind | None, str]] = [
    ({"response_format": {"type": "text"}}, None, ""),
    ({"response_format": {"type": "json_object"}}, JSON, '{"type": "object"}'),
    ({"response_format": schema_format(SCHEMA)}, JSON, json.dumps(SCHEMA)),
    ({"json_schema": json.dumps(SCHEMA)}, JSON, json.dumps(SCHEMA)),
    ({"json_schema": SCHEMA}, JSON, json.dumps(SCHEMA)),
    ({"guided_json": SCHEMA}, JSON, json.dumps(SCHEMA)),
    ({"structured_outputs": {"json": SCHEMA}}, JSON, json.dumps(SCHEMA)),
    ({"structured_outputs": {"json_object": True}}, JSON, '{"type": "object"}'),
    ({"regex": "a+"}, REGEX, "a+"),
    ({"guided_regex": "a+"}, REGEX, "a+"),
    ({"structured_outputs": {"regex": "a+"}}, REGEX, "a+"),
    ({"ebnf": ROOT}, EBNF, ROOT),
    ({"guided_grammar": ROOT}, EBNF, ROOT),
    ({"structured_outputs": {"grammar": ROOT}}, EBNF, ROOT),
    ({"guided_choice": ["a", "b"]}, GrammarKind.CHOICE, '["a","b"]'),
    ({"structured_outputs": {"choice": ["a", "b"]}}, GrammarKind.CHOICE, '["a","b"]'),
    ({"regex": "", "ebnf": "", "json_schema": "", "structured_outputs": {}}, None, ""),
    ({"regex": None, "guided_choice": [], "response_format": None}, None, ""),
]


@pytest.mark.parametrize(("fields", "kind", "text"), OPENAI)
async def test_every_spelling_of_openai_routes_reaches_the_scheduler(
    bench: Bench, fields: dict[str, Any], kind: GrammarKind | None, text: str
):
    expected = None if kind is None else Grammar(kind, text)
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": HI},
        "/v1/completions": {"prompt": "a"},
    }
    for path, body in bodies.items():
        response = await bench.post(path, {**body, **fields})
        assert response.status_code == 200, response.text
        assert sent(bench) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"json_schema": json.dumps(SCHEMA)}, Grammar(JSON, json.dumps(SCHEMA))),
        ({"json_schema": SCHEMA}, Grammar(JSON, json.dumps(SCHEMA))),
        ({"regex": "a+"}, Grammar(REGEX, "a+")),
        ({"ebnf": ROOT}, Grammar(EBNF, ROOT)),
        ({"json_schema": "", "regex": "", "ebnf": None}, None),
    ],
)
async def test_every_spelling_of_the_native_route(
    bench: Bench, fields: dict[str, Any], expected: Grammar | None
):
    response = await bench.post("/generate", {"text": ["a", "b"], "sampling_params": fields})
    assert response.status_code == 200, response.text
    assert sent(bench) == expected


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/generate", {"sampling_params": {"regex": "a", "ebnf": ROOT}}, "regex and sampling"),
        ("/generate", {"sampling_params": {"regex": "(a"}}, "unclosed group"),
        ("/generate", {"sampling_params": {"json_schema": "{"}}, "no JSON"),
        ("/generate", {"sampling_params": {"json_schema": BAD}}, "Invalid type: strin"),
        ("/generate", {"sampling_params": {"ebnf": "x ::= y"}}, "invalid ebnf"),
        ("/v1/chat/completions", {"regex": "a", "response_format": schema_format({})}, "both set"),
        ("/v1/chat/completions", {"response_format": {"type": "json_schema"}}, "schema"),
        ("/v1/chat/completions", {"response_format": {"type": "xml"}}, "must be one of"),
        ("/v1/chat/completions", {"response_format": schema_format(BAD)}, "Invalid type: strin"),
        ("/v1/chat/completions", {"guided_regex": "[", "stream": True}, "unclosed character"),
        ("/v1/chat/completions", {"structured_outputs": {"regex": "a", "json": {}}}, "both set"),
        ("/v1/completions", {"guided_grammar": "root ::= (", "stream": True}, "invalid ebnf"),
        ("/v1/completions", {"regex": "a" * 20_000}, "at most 16384"),
    ],
)
async def test_bad_grammar_is_400_before_any_token_and_any_stream(
    bench: Bench, path: str, body: dict[str, Any], words: str
):
    response = await bench.post(path, {"messages": HI, "text": "a", "prompt": "a", **body})
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]
    assert bench.engine.sent == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"structural_tag": {"x": 1}}, "structural_tag"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"whitespace_pattern": "x"}}, "whitespace_pattern"),
    ],
)
async def test_what_is_not_built_is_501(bench: Bench, fields: dict[str, Any], param: str):
    response = await bench.post("/v1/chat/completions", {"messages": HI, **fields})
    assert response.status_code == 501
    assert param in response.json()["error"]["param"]


async def test_switched_off_is_501(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench.service.grammars, "_is_on", False)
    response = await bench.post("/generate", {"text": "a", "sampling_params": {"regex": "a"}})
    assert response.status_code == 501
    assert "--grammar-backend" in response.json()["error"]["message"]


async def test_grammar_that_takes_too_long_is_400(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.srt.api.grammar.CHECK_S", 0.0)
    response = await bench.post("/generate", {"text": "a", "sampling_params": {"regex": "a"}})
    assert response.status_code == 400
    assert "takes longer than 0 s" in response.json()["error"]["message"]


async def test_form_is_that_of_the_answer_when_the_prompt_opens_reasoning():
    async with serving(model=ModelSection(reasoning_parser="deepseek-r1")) as bench:
        body = {"messages": HI, "response_format": {"type": "json_object"}}
        assert (await bench.post("/v1/chat/completions", body)).status_code == 200
        assert "</think>" in sent(bench).prelude.replace("\\", "")
        assert (await bench.post("/v1/completions", {"prompt": "a", "regex": "a"})).is_success
        assert sent(bench).prelude == ""


async def test_form_beside_tools_that_may_be_called_is_501():
    async with serving(model=ModelSection(tool_call_parser="hermes"), context_len=2000) as bench:
        body = {"messages": HI, "tools": [TOOL], "response_format": {"type": "json_object"}}
        response = await bench.post("/v1/chat/completions", body)
        assert response.status_code == 501
        body["tool_choice"] = "none"
        assert (await bench.post("/v1/chat/completions", body)).status_code == 200
