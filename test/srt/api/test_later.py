"""Features that are not built answer 501 and say which field asked for them."""

from __future__ import annotations

from typing import Any

import pytest

from test.serving import Bench
from treadle.srt.api.later import ROUTES

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

CHAT_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("session_params", {"session_params": {"id": "s"}}),
    ("lora_path", {"lora_path": "x"}),
    ("return_hidden_states", {"return_hidden_states": True}),
    ("echo", {"echo": True}),
    ("bad_words", {"bad_words": ["x"]}),
]  # fmt: skip
TEXT_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("suffix", {"suffix": "end"}),
    ("best_of", {"best_of": 2}),
    ("best_of", {"best_of": 2, "n": 3}),
]
NATIVE_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("image_data", {"text": "a", "image_data": "x"}),
    ("input_embeds", {"input_embeds": [[0.1]]}),
    ("sampling_params.stop_regex", {"text": "a", "sampling_params": {"stop_regex": "a"}}),
    ("sampling_params.beam_width", {"text": "a", "sampling_params": {"beam_width": 2}}),
]


async def check(bench: Bench, path: str, body: dict[str, Any], param: str) -> None:
    response = await bench.post(path, body)
    assert response.status_code == 501, response.text
    error = response.json()["error"]
    assert error["type"] == "NotImplementedError"
    assert error["param"] == param
    assert param in error["message"]
    assert bench.engine.sent == []


@pytest.mark.parametrize(("param", "fields"), CHAT_ROWS)
async def test_chat_field_is_501(bench: Bench, param: str, fields: dict[str, Any]):
    await check(bench, "/v1/chat/completions", {"messages": HI, **fields}, param)


@pytest.mark.parametrize(("param", "fields"), TEXT_ROWS)
async def test_completion_field_is_501(bench: Bench, param: str, fields: dict[str, Any]):
    await check(bench, "/v1/completions", {"prompt": "a", **fields}, param)


@pytest.mark.parametrize(("param", "fields"), NATIVE_ROWS)
async def test_native_field_is_501(bench: Bench, param: str, fields: dict[str, Any]):
    await check(bench, "/generate", fields, param)


@pytest.mark.parametrize("path", ROUTES)
async def test_route_is_501_by_name(bench: Bench, path: str):
    path = path.replace("{id}", "x")
    response = await bench.post(path, {})
    assert response.status_code == 501
    assert response.json()["param"] == path


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [], "response_format": {"type": "text"}, "regex": "", "echo": False},
        {"tools": None, "response_format": None, "regex": None, "prompt_logprobs": None},
        {"best_of": 1, "suffix": "", "lora_path": None, "bad_words": []},
        {"a_field_of_next_year": {"x": 1}},
    ],
)
async def test_values_that_mean_off_pass(bench: Bench, fields: dict[str, Any]):
    chat = await bench.post("/v1/chat/completions", {"messages": HI, **fields})
    text = await bench.post("/v1/completions", {"prompt": "a", **fields})
    native = await bench.post("/generate", {"text": "a", **fields})
    assert [r.status_code for r in (chat, text, native)] == [200, 200, 200]
