"""Chat completions: whole and streamed answers say the same."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.client.errors import BrokenAnswer
from treadle.lang.backend import AnswerRequest
from treadle.lang.chat_wire import ChatStream, chat_body, read_whole
from treadle.lang.ir import Logprobs
from treadle.lang.prompt import ChatPrompt
from treadle.lang.sampling import Sampling
from treadle.lang.tools import ToolCall

USAGE = {
    "prompt_tokens": 9, "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 8, "replayed_tokens": 1},
}  # fmt: skip
META = {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 8, "replayed_tokens": 1}
CALL = {"id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}
ENTRY = {"token": "4", "logprob": -0.5, "top_logprobs": [{"token": "4", "logprob": -0.5}]}


def test_a_request_is_the_prompt_with_its_wishes():
    prompt = ChatPrompt(({"role": "user", "content": "Hi"},), "answer", ({"type": "function"},))
    body = chat_body(AnswerRequest(prompt, Sampling(max_new_tokens=4), None, "none"), "m")
    assert body == {
        "model": "m", "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function"}], "tool_choice": "none", "max_tokens": 4,
    }  # fmt: skip


def whole(**message: Any) -> Any:
    choice = {"index": 0, "message": message, "finish_reason": "stop", "matched_stop": 1}
    return {"choices": [choice], "usage": USAGE}


def test_a_whole_answer_is_read():
    (answer,) = read_whole(whole(content="4", reasoning_content="hm", tool_calls=[CALL]), None)
    assert (answer.text, answer.reasoning) == ("4", "hm")
    assert answer.calls == (ToolCall("c1", "add", '{"a": 1}'),)
    assert answer.meta == {**META, "finish_reason": {"type": "stop", "matched": 1}}


def test_logprobs_become_the_triples_of_the_native_route():
    wanted = Logprobs(start=1, top=1, has_text=True)
    body = whole(content="4")
    body["choices"][0] |= {"logprobs": {"content": [ENTRY]}, "token_ids": [52]}
    body |= {
        "prompt_token_ids": [7, 8],
        "prompt_logprobs": [None, {"8": {"logprob": -2.0, "decoded_token": "b"}}],
    }
    (answer,) = read_whole(body, wanted)
    assert answer.meta["output_token_logprobs"] == [[-0.5, 52, "4"]]
    assert answer.meta["output_top_logprobs"] == [[[-0.5, None, "4"]]]
    assert answer.meta["input_token_logprobs"] == [[-2.0, 8, "b"]]


@pytest.mark.parametrize("body", [{}, {"choices": [{}]}, {"choices": None}])
def test_another_form_is_no_answer(body):
    with pytest.raises(BrokenAnswer, match="no chat completion"):
        read_whole(body, None)


def test_an_aborted_answer_is_none():
    body = whole(content="4")
    body["choices"][0]["finish_reason"] = "abort"
    with pytest.raises(BrokenAnswer, match="aborted"):
        read_whole(body, None)


def chunk(delta: Any = None, finish: str | None = None, index: int = 0, **more: Any) -> Any:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **more}


def test_a_stream_adds_up_to_the_whole_answer():
    stream = ChatStream(1, None)
    parts = [{"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}},
             {"index": 0, "function": {"arguments": '{"a"'}},
             {"index": 0, "function": {"arguments": ": 1}"}}]  # fmt: skip
    deltas = [
        stream.push(each)
        for each in (
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning_content": "h", "reasoning": "h"}),
            chunk({"reasoning": "m"}),
            chunk({"content": "4"}),
            *(chunk({"tool_calls": [part]}) for part in parts),
            {**chunk(None, "stop"), "choices": [{"index": 0, "delta": {}, "finish_reason": "stop",
                                                 "matched_stop": 1}]},
            {"choices": [], "usage": USAGE},
        )
    ]  # fmt: skip
    assert [(d.text, d.reasoning) for d in deltas if d] == [("", "h"), ("", "m"), ("4", "")]
    expected = read_whole(whole(content="4", reasoning_content="hm", tool_calls=[CALL]), None)
    assert list(stream.answers({})) == expected


def test_choices_of_a_stream_are_kept_apart():
    stream = ChatStream(2, None)
    for each in (chunk({"content": "b"}, index=1), chunk({"content": "a"}),
                 chunk(None, "stop"), chunk(None, "length", index=1)):  # fmt: skip
        stream.push(each)
    assert [answer.text for answer in stream.answers({})] == ["a", "b"]


def test_a_stream_without_its_end_is_broken():
    stream = ChatStream(1, None)
    stream.push(chunk({"content": "4"}))
    with pytest.raises(BrokenAnswer, match="before its finish reason"):
        stream.answers({})
