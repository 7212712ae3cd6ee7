"""Spells one generation as a chat completion of the OpenAI API, whole or as chunks.

One delta may be no chunk (text is held back) or several (the end of the reasoning and the first
content); log-probabilities and ids of a delta go with its first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from ..parse.events import Content, Reasoning, ToolArguments
from ..tokenizer.choice import Delta
from ..tokenizer.encode import Tokenizer
from ..tokenizer.generation import Generation
from .chat_output import CallStart, ChatOutput, ChatText, OutputEvent, OutputRules, whole
from .logprobs import chat_content
from .openai_common import Frame, Members
from .scoring import prompt_logprobs
from .service import WEIGHT_VERSION

_NULL = b"null"


class ChatAnswer:
    """Also the writer of its events."""

    def __init__(
        self, tokenizer: Tokenizer, generation: Generation, frame: Frame, rules: OutputRules
    ) -> None:
        self._tokenizer = tokenizer
        self._generation = generation
        self._frame = frame
        self._is_reasoning = rules.reasoning is not None
        self._outputs = [ChatOutput(rules, tokenizer) for _ in generation.choices]

    def body(self, deltas: list[Delta]) -> Members:
        texts = {delta.index: whole(self._push(delta)) for delta in deltas}
        ended = [replace(delta, ending=texts[delta.index].ending) for delta in deltas]
        body = self._frame.body(ended, lambda delta: self._choice(delta, texts[delta.index]))
        body["metadata"] = {"weight_version": WEIGHT_VERSION}
        if self._frame.plan.has_token_ids:
            body["prompt_token_ids"] = self._prompt_token_ids()
        top, log = self._frame.plan.prompt_top, self._generation.choices[0].scores
        if top is not None and log is not None:
            body["prompt_logprobs"] = prompt_logprobs(self._tokenizer, log, top)
        return body

    def _push(self, delta: Delta) -> list[OutputEvent]:
        output = self._outputs[delta.index]
        events = output.push(delta)
        if self._is_reasoning:
            self._frame.reasoned(delta.index, output.reasoning_tokens)
        return events

    def _choice(self, delta: Delta, text: ChatText) -> Members:
        content = text.content
        if content is None and not text.calls and text.reasoning is None:
            content = ""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in text.calls
        ]
        message = {
            "role": "assistant",
            "content": content,
            "reasoning_content": text.reasoning,
            "reasoning": text.reasoning,
            "tool_calls": calls or None,
        }
        return {"message": message, "logprobs": self._logprobs(delta)}

    def _logprobs(self, delta: Delta) -> Members | None:
        if not self._frame.plan.has_logprobs:
            return None
        return {"content": chat_content(self._tokenizer, delta, self._frame.plan.num_top)}

    def _prompt_token_ids(self) -> list[int]:
        return self._generation.choices[0].request.prompt_ids.tolist()

    def begin(self) -> bytes:
        fields = b'"delta":{"role":"assistant","content":""},"logprobs":null'
        top = b""
        if self._frame.plan.has_token_ids:
            top = b',"prompt_token_ids":' + orjson.dumps(self._prompt_token_ids())
        return b"".join(
            self._frame.chunks.choice(choice.index, fields, top=top if choice.index == 0 else b"")
            for choice in self._generation.choices
        )

    def write(self, delta: Delta) -> bytes:
        events = self._push(delta)
        if delta.ending is not None:
            delta = replace(delta, ending=whole(events[-1:]).ending)
        fields = self._fields(delta, [part for part in map(_spell, events) if part])
        return self._frame.write(delta, fields, b'"delta":{},"logprobs":null')

    def _fields(self, delta: Delta, parts: Sequence[bytes]) -> list[bytes]:
        if not parts and self._frame.has_token_news(delta):
            parts = [b'{"content":""}']
        if not parts:
            return []
        logprobs = self._logprobs(delta)
        first = _NULL if logprobs is None else orjson.dumps(logprobs)
        return [
            b'"delta":%b,"logprobs":%b' % (part, _NULL if i else first)
            for i, part in enumerate(parts)
        ]

    def end(self) -> bytes:
        return self._frame.end()


def _spell(event: OutputEvent) -> bytes:
    """The `delta` of an event; b"" for the end, which has a chunk of its own."""
    if isinstance(event, Content):
        return b'{"content":%b}' % orjson.dumps(event.text)
    if isinstance(event, Reasoning):  # clients of the two server families read one or the other
        text = orjson.dumps(event.text)
        return b'{"reasoning_content":%b,"reasoning":%b}' % (text, text)
    if isinstance(event, CallStart):
        function = orjson.dumps({"name": event.name, "arguments": ""})
        return b'{"tool_calls":[{"index":%d,"id":"%b","type":"function","function":%b}]}' % (
            event.index,
            event.id.encode(),
            function,
        )
    if isinstance(event, ToolArguments):
        return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (
            event.index,
            orjson.dumps(event.text),
        )
    return b""
