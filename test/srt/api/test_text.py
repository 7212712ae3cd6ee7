"""/tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

import pytest

from test.serving import BOS, EOS, Bench


async def test_tokenize_has_both_spellings(bench: Bench):
    body = (await bench.post("/tokenize", {"prompt": "hi"})).json()
    assert body == {
        "tokens": [BOS, 104, 105],
        "count": 3,
        "max_model_len": 200,
        "token_strs": ["<bos>", "h", "i"],
    }
    plain = {"text": "hi", "add_special_tokens": False}
    assert (await bench.post("/v1/tokenize", plain)).json()["tokens"] == [104, 105]


async def test_tokenize_many_and_long_and_messages(bench: Bench):
    many = (await bench.post("/tokenize", {"prompt": ["a", "bc", ""]})).json()
    assert many["count"] == [2, 3, 1]
    long = (await bench.post("/tokenize", {"prompt": "x" * 10_000})).json()
    assert long["count"] == 10_001
    messages = [{"role": "user", "content": "hi"}]
    chat = (await bench.post("/tokenize", {"messages": messages})).json()
    assert bytes(chat["tokens"][1:]) == b"user:hi|assistant:"
    bare = {"messages": messages, "add_generation_prompt": False}
    assert bytes((await bench.post("/tokenize", bare)).json()["tokens"][1:]) == b"user:hi|"


async def test_detokenize_has_both_spellings(bench: Bench):
    body = (await bench.post("/detokenize", {"tokens": [104, 105, EOS]})).json()
    assert body == {"text": "hi", "prompt": "hi"}
    shown = {"tokens": [104, EOS], "skip_special_tokens": False}
    assert (await bench.post("/detokenize", shown)).json()["text"] == "h<eos>"
    many = (await bench.post("/detokenize", {"tokens": [[104], []]})).json()
    assert many["text"] == ["h", ""]
    assert (await bench.post("/detokenize", {"tokens": []})).json()["text"] == ""


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [999]}, "tokens"),
        ("/detokenize", {"tokens": [[1], [-1]]}, "tokens[1]"),
        ("/detokenize", {"tokens": [[1], 1]}, "tokens[1]"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
async def test_bad_bodies_are_400(bench: Bench, path: str, body: dict[str, Any], param: str):
    response = await bench.post(path, body)
    assert response.status_code == 400
    assert response.json()["param"] == param
