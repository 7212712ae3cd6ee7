"""Chunks of OpenAI streams: shape, escaping and cost."""

from __future__ import annotations

import time

import orjson
import pytest

from test.srt.api.test_usage import make_choices
from treadle.srt.api.chunks import ChunkSpelling
from treadle.srt.api.usage import UsageSum
from treadle.srt.tokenizer.trail import Ending

TEXT = '"quoted"\n\\ € \u2028 \U0001f600 \x00'


@pytest.mark.parametrize("has_running_usage", [False, True])
def test_chunks_are_one_line_of_json(has_running_usage: bool):
    usage = UsageSum(make_choices([3], 2), has_cache_report=True)
    head: dict[str, object] = {"id": TEXT, "model": "m"}
    chunks = ChunkSpelling(head, usage, has_running_usage=has_running_usage)
    fields = b'"text":' + orjson.dumps(TEXT)
    for ending in (None, Ending("stop", TEXT), Ending("stop", 5), Ending("length")):
        line = chunks.choice(1, fields, ending)
        assert line.startswith(b"data: ")
        assert line.endswith(b"\n\n")
        assert line.count(b"\n") == 2
        body = orjson.loads(line[6:])
        assert body["id"] == TEXT
        assert ("usage" in body) == has_running_usage
        (choice,) = body["choices"]
        assert choice["text"] == TEXT
        assert choice["finish_reason"] == (ending.reason if ending else None)
        if ending:
            assert choice["matched_stop"] == ending.matched


def test_chunk_costs_less_than_twenty_microseconds():
    usage = UsageSum(make_choices([3], 1), has_cache_report=True)
    head = {"id": "x" * 32, "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = ChunkSpelling(head, usage, has_running_usage=False)
    best = 1.0
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            chunks.choice(0, b'"delta":{"content":%b},"logprobs":null' % orjson.dumps("token"))
        best = min(best, (time.perf_counter() - start) / 100)
    assert best < 20e-6
