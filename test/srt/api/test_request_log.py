"""What is logged of a request, by level and format."""

from __future__ import annotations

import json
import logging

import pytest

from test.serving import serving
from treadle.srt.config import NetSection

BODY = {"text": "my\nsecret", "temperature": 1, "sampling_params": {"max_new_tokens": 3}}


async def line_of(caplog: pytest.LogCaptureFixture, level: int, form: str = "text") -> str:
    net = NetSection(log_requests=True, log_requests_level=level, log_requests_format=form)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        async with serving(net=net) as bench:
            assert (await bench.post("/generate", BODY)).status_code == 200
    (record,) = [r for r in caplog.records if "http_request" in r.getMessage()]
    return record.getMessage()


@pytest.mark.parametrize(
    ("level", "has_options", "has_texts"),
    [(0, False, False), (1, True, False), (2, True, True), (3, True, True)],
)
async def test_each_level_tells_more(
    caplog: pytest.LogCaptureFixture, level: int, has_options: bool, has_texts: bool
):
    line = await line_of(caplog, level)
    assert "path=/generate status=200 s=" in line
    assert ("max_new_tokens" in line) == has_options
    assert ("secret" in line) == ("hel" in line) == has_texts
    assert "\n" not in line


async def test_a_line_may_be_json(caplog: pytest.LogCaptureFixture):
    fields = json.loads(await line_of(caplog, 3, "json"))
    assert fields["event"] == "http_request" and fields["status"] == 200
    assert json.loads(fields["request"]) == BODY
    assert json.loads(fields["response"])["text"] == "hel"


async def test_only_the_highest_level_tells_all_of_a_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treadle.srt.api.request_log.SHORT_BYTES", 10)
    fields = json.loads(await line_of(caplog, 2, "json"))
    assert len(fields["request"]) == len(fields["response"]) == 10
