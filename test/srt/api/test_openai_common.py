"""Options that chat and text completions share."""

from __future__ import annotations

import pytest

from treadle.srt.api.openai_common import AnswerPlan
from treadle.srt.api.schema import ChatRequest, StreamOptions
from treadle.srt.errors import BadRequest


def test_stream_options_need_a_stream():
    with pytest.raises(BadRequest):
        AnswerPlan(ChatRequest(stream=False, stream_options=StreamOptions()), num_top=None)
    body = ChatRequest(stream=True, stream_options=StreamOptions(include_usage=True))
    plan = AnswerPlan(body, num_top=None)
    assert (plan.has_usage_chunk, plan.has_running_usage) == (True, False)
