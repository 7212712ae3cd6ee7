"""The official Anthropic SDK, unmodified, against a real HTTP server in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

from test.serving import CONTEXT_LEN, FakeEngine, refuse
from test.srt.api.conftest import OverHttp

MESSAGES: list[MessageParam] = [{"role": "user", "content": "hi"}]
HOT = {"temperature": -1}  # a field that later SDKs do not name


@dataclass
class Served:
    client: anthropic.Anthropic
    engine: FakeEngine


@pytest.fixture
def served(over_http: OverHttp) -> Iterator[Served]:
    with anthropic.Anthropic(
        base_url=over_http.url, api_key=over_http.key, max_retries=0
    ) as client:
        yield Served(client, over_http.engine)


def test_sdk_reads_answers_and_counts(served: Served):
    messages = served.client.messages
    whole = messages.create(model="x", max_tokens=20, messages=MESSAGES, system="be kind")
    assert [block.text for block in whole.content if block.type == "text"] == ["hello"]
    assert whole.stop_reason == "end_turn"
    assert whole.usage.cache_read_input_tokens == 3
    counted = messages.count_tokens(model="x", messages=MESSAGES, system="be kind")
    assert counted.input_tokens == whole.usage.input_tokens + 3
    stopped = messages.create(
        model="x", max_tokens=20, messages=MESSAGES, stop_sequences=["ll"],
        extra_body={"swa_replay": "exact", "session_id": "s"},
    )  # fmt: skip
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "ll")
    assert served.engine.requests[-1].replay_mode == "exact"


def test_sdk_reads_streams(served: Served):
    messages = served.client.messages
    with messages.stream(model="x", max_tokens=20, messages=MESSAGES) as stream:
        assert "".join(stream.text_stream) == "hello"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == 6
    events = list(messages.create(model="x", max_tokens=20, messages=MESSAGES, stream=True))
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"


@pytest.mark.parametrize("over_http", [2000], indirect=True)
def test_tool_round_trip(served: Served):
    tools: list[ToolParam] = [
        {"name": "look", "description": "looks", "input_schema": {"type": "object"}}
    ]
    call_text = b'<tool_call>{"name": "look", "arguments": {"at": "sky"}}</tool_call>'
    served.engine.reply = b"I look.\n" + call_text
    messages = served.client.messages
    asked = messages.create(model="x", max_tokens=200, messages=MESSAGES, tools=tools)
    assert asked.stop_reason == "tool_use"
    with messages.stream(model="x", max_tokens=200, messages=MESSAGES, tools=tools) as stream:
        streamed = stream.get_final_message()
    for message in (asked, streamed):
        text, call = message.content
        assert text.type == "text"
        assert text.text == "I look."
        assert call.type == "tool_use"
        assert (call.name, call.input) == ("look", {"at": "sky"})
    served.engine.reply = b"It is blue."
    result: ToolResultBlockParam = {
        "type": "tool_result", "tool_use_id": call.id, "content": "blue"
    }  # fmt: skip
    turns: list[MessageParam] = [
        *MESSAGES,
        {"role": "assistant", "content": asked.content},
        {"role": "user", "content": [result]},
    ]
    answer = messages.create(model="x", max_tokens=200, messages=turns, tools=tools)
    assert answer.stop_reason == "end_turn"
    assert [block.text for block in answer.content if block.type == "text"] == ["It is blue."]


def test_sdk_raises_the_right_class(served: Served):
    client, messages = served.client, served.client.messages
    with pytest.raises(anthropic.BadRequestError, match="temperature") as bad:
        messages.create(model="x", max_tokens=5, messages=MESSAGES, extra_body=HOT)
    assert bad.value.type == "invalid_request_error"
    assert bad.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="context length"):
        messages.create(model="x", max_tokens=CONTEXT_LEN, messages=MESSAGES)
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(api_key="wrong").messages.create(
            model="x", max_tokens=5, messages=MESSAGES
        )
    with pytest.raises(anthropic.NotFoundError):
        client.post("/v1/messages/nope", cast_to=object, body={})
    served.engine.script = refuse(503, "the queue is full")
    for stream in (False, True):
        with pytest.raises(anthropic.InternalServerError, match="queue is full") as full:
            messages.create(model="x", max_tokens=5, messages=MESSAGES, stream=stream)
        assert full.value.type == "overloaded_error"
    served.engine.script = refuse(500, "not finite")
    with pytest.raises(anthropic.InternalServerError) as broken:
        messages.create(model="x", max_tokens=5, messages=MESSAGES)
    assert broken.value.type == "api_error"


def test_closed_stream_aborts_the_request(served: Served):
    is_aborted = threading.Event()
    served.engine.script = lambda engine, request: engine.emit(request.rid, b"he")
    served.engine.on_abort = lambda message: is_aborted.set()
    stream = served.client.messages.create(model="x", max_tokens=5, messages=MESSAGES, stream=True)
    assert next(iter(stream)).type == "message_start"
    stream.close()
    assert is_aborted.wait(60)
