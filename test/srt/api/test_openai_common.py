"""Options that chat and text completions share."""

from __future__ import annotations

import pytest

from treadle.srt.api.openai_common import StreamPlan, top_logprobs
from treadle.srt.api.schema import ChatRequest, StreamOptions
from treadle.srt.errors import BadRequest


def test_stream_options_need_a_stream():
    with pytest.raises(BadRequest):
        StreamPlan(ChatRequest(stream=False, stream_options=StreamOptions()))
    plan = StreamPlan(ChatRequest(stream=True, stream_options=StreamOptions(include_usage=True)))
    assert (plan.has_usage_chunk, plan.has_running_usage) == (True, False)


@pytest.mark.parametrize("value", [None, 0, 20])
def test_top_logprobs_in_range_pass(value: int | None):
    assert top_logprobs(value, "x") == value


@pytest.mark.parametrize("value", [-1, 21, 10**30])
def test_top_logprobs_out_of_range_are_named(value: int):
    with pytest.raises(BadRequest, match="x must be at least 0 and at most 20"):
        top_logprobs(value, "x")
