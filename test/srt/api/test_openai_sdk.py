"""The official SDK against a real HTTP server in this process, on a free port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import openai
import pytest
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageParam,
    ChatCompletionStreamOptionsParam,
)

from test.serving import FakeEngine
from test.srt.api.conftest import OverHttp

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@dataclass
class Served:
    client: openai.OpenAI
    engine: FakeEngine


@pytest.fixture
def served(over_http: OverHttp) -> Iterator[Served]:
    url = f"{over_http.url}/v1"
    with openai.OpenAI(base_url=url, api_key=over_http.key, max_retries=0) as client:
        yield Served(client, over_http.engine)


def test_sdk_reads_answers_streams_and_logprobs(served: Served):
    chat = served.client.chat.completions
    whole = chat.create(model="x", messages=MESSAGES, logprobs=True, top_logprobs=2, n=2)
    assert [choice.message.content for choice in whole.choices] == ["hello", "hello"]
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    assert logprobs.content[0].top_logprobs[1].token == "i"
    assert whole.usage.prompt_tokens_details.cached_tokens == 3
    options: ChatCompletionStreamOptionsParam = {"include_usage": True}
    chunks = list(chat.create(model="x", messages=MESSAGES, stream=True, stream_options=options))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hello"
    assert chunks[-1].usage.completion_tokens == 6
    text = served.client.completions.create(model="x", prompt=["a", "b"], logprobs=1)
    assert [choice.text for choice in text.choices] == ["hello", "hello"]
    pieces = list(served.client.completions.create(model="x", prompt="a", stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == "hello"
    assert served.client.models.list().data[0].id == "tiny"


TOOLS: list[ChatCompletionFunctionToolParam] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
]


@pytest.mark.parametrize("over_http", [2000], indirect=True)
def test_sdk_reads_calls_whole_and_streamed(served: Served):
    call = b'<tool_call>\n{"name": "f", "arguments": {"s": "\xc3\xa9"}}\n</tool_call>'
    served.engine.reply = b"Ok.\n" + call + b"\n" + call
    chat = served.client.chat.completions
    whole = chat.create(model="x", messages=MESSAGES, tools=TOOLS, max_tokens=300).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content == "Ok."
    assert whole.message.tool_calls is not None
    with chat.stream(model="x", messages=MESSAGES, tools=TOOLS, max_tokens=300) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.message.content == "Ok."
    assert final.message.tool_calls is not None
    for one, other in zip(whole.message.tool_calls, final.message.tool_calls, strict=True):
        assert one.type == "function"
        assert (one.function.name, one.function.arguments) == ("f", '{"s": "é"}')
        assert (other.function.name, other.function.arguments) == ("f", '{"s": "é"}')
    history: list[ChatCompletionMessageParam] = [
        *MESSAGES,
        cast(ChatCompletionMessageParam, whole.message.to_dict()),
        {"role": "tool", "tool_call_id": whole.message.tool_calls[0].id, "content": "42"},
    ]
    assert chat.create(model="x", messages=history, tools=TOOLS, max_tokens=1).choices


def test_sdk_raises_the_right_class(served: Served):
    client = served.client
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="x", messages=MESSAGES, temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="x", prompt="x" * 3000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="x", input="a")
    with pytest.raises(openai.InternalServerError) as later:
        client.responses.create(model="x", input="a")
    assert later.value.status_code == 501


def test_closed_stream_aborts_the_request(served: Served):
    is_aborted = threading.Event()
    served.engine.script = lambda engine, request: engine.emit(request.rid, b"he")
    served.engine.on_abort = lambda message: is_aborted.set()
    stream = served.client.completions.create(model="x", prompt="a", stream=True)
    assert next(iter(stream)).choices[0].text == "he"
    stream.close()
    assert is_aborted.wait(60)


def test_echo_and_logprobs_through_the_sdk(served: Served):
    """C1, C6."""
    answer = served.client.completions.create(
        model="x", prompt=[256, 97], echo=True, logprobs=1, max_tokens=1, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert answer.choices[0].text == "ah"
    assert logprobs.token_logprobs == [None, -98.0, -0.5]
    assert logprobs.text_offset == [0, 0, 1]
