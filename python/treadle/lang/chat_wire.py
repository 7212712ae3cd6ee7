"""Chat completions as they cross the wire: a request's body, and the answer of whole or streamed
ones. Shared by all backends that speak this protocol; pure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..client.errors import BrokenAnswer
from .backend import Answer, AnswerRequest, Delta
from .ir import Logprobs
from .prompt import ChatPrompt
from .tools import ToolCall

Json = dict[str, Any]


def chat_body(request: AnswerRequest, model: str) -> Json:
    """Without session and streaming. The prompt must be a chat."""
    assert isinstance(request.prompt, ChatPrompt)
    body: Json = {"model": model, **request.prompt.body(), **request.sampling.chat()}
    if request.prompt.tools and request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    return body


def logprob_fields(wanted: Logprobs | None) -> Json:
    """Our server's spelling."""
    if wanted is None:
        return {}
    fields: Json = {"logprobs": True, "top_logprobs": wanted.top, "return_token_ids": True}
    if wanted.start >= 0:
        fields["prompt_logprobs"] = wanted.top
    return fields


def read_whole(body: Json, wanted: Logprobs | None) -> list[Answer]:
    """Raises BrokenAnswer."""
    with reading("chat completion"):
        usage = read_usage(body.get("usage") or {})
        prompt = _prompt_logprobs(body, wanted)
        return [_answer(choice, {**usage, **prompt}, wanted) for choice in body["choices"]]


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Around what takes an answer apart: another form than the protocol's is a BrokenAnswer."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BrokenAnswer(f"an answer that is no {what}: {error!r:.300}") from None


def _answer(choice: Json, meta: Json, wanted: Logprobs | None) -> Answer:
    message = choice["message"]
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    meta = {**meta, "finish_reason": finish(choice)}
    if wanted is not None and choice.get("logprobs"):
        meta |= _output_logprobs(choice, wanted)
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return Answer(message.get("content") or "", reasoning, calls, meta)


def finish(choice: Mapping[str, Any]) -> Json:
    """As /generate says it. Raises BrokenAnswer for an answer that the server gave up."""
    kind, matched = choice.get("finish_reason"), choice.get("matched_stop")
    if kind == "abort":
        raise BrokenAnswer("the server aborted the request")
    return {"type": kind} if matched is None else {"type": kind, "matched": matched}


def read_usage(usage: Mapping[str, Any]) -> Json:
    """In the names of /generate; None for what the server does not tell."""
    details = usage.get("prompt_tokens_details") or {}
    return {
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens"),
        "replayed_tokens": details.get("replayed_tokens"),
    }


def _output_logprobs(choice: Json, wanted: Logprobs) -> Json:
    """In the triples of /generate: log-probability, id, text or None."""
    content = choice["logprobs"]["content"] or []
    ids = choice.get("token_ids") or [None] * len(content)
    meta: Json = {
        "output_token_logprobs": [
            [entry["logprob"], token, entry["token"] if wanted.has_text else None]
            for entry, token in zip(content, ids, strict=False)
        ]
    }
    if wanted.top:
        meta["output_top_logprobs"] = [
            [[top["logprob"], None, top["token"]] for top in entry["top_logprobs"]]
            for entry in content
        ]
    return meta


def _prompt_logprobs(body: Json, wanted: Logprobs | None) -> Json:
    if wanted is None or wanted.start < 0 or not body.get("prompt_logprobs"):
        return {}
    pairs = zip(body["prompt_token_ids"], body["prompt_logprobs"], strict=True)
    triples = [_triple(token, entry, wanted) for token, entry in pairs]
    return {"input_token_logprobs": triples[wanted.start :]}


def _triple(token: int, entry: Json | None, wanted: Logprobs) -> list[Any]:
    if entry is None:
        return [None, token, None]
    found = entry[str(token)]
    return [found["logprob"], token, found["decoded_token"] if wanted.has_text else None]


@dataclass(slots=True, eq=False)
class _Growing:
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: Json | None = None
    content: list[Json] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


class ChatStream:
    """Chunks in, `Delta`s of the first choice out; the answers when it has ended."""

    def __init__(self, num_outputs: int, wanted: Logprobs | None) -> None:
        self._choices = [_Growing() for _ in range(num_outputs)]
        self._wanted = wanted
        self._meta: Json = {}

    def push(self, chunk: Json) -> Delta | None:
        """Raises BrokenAnswer."""
        with reading("chunk of a chat completion"):
            return self._add(chunk)

    def _add(self, chunk: Json) -> Delta | None:
        if chunk.get("usage"):
            self._meta = read_usage(chunk["usage"])
        delta = None
        for choice in chunk.get("choices") or ():
            grown = self._push(choice)
            if choice["index"] == 0 and (grown.text or grown.reasoning):
                delta = grown
        return delta

    def _push(self, choice: Json) -> Delta:
        own, delta = self._choices[choice["index"]], choice.get("delta") or {}
        text = delta.get("content") or ""
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        own.text.append(text)
        own.reasoning.append(reasoning)
        for part in delta.get("tool_calls") or ():
            call = own.calls.setdefault(part["index"], ["", "", ""])
            function = part.get("function") or {}
            call[0] = part.get("id") or call[0]
            call[1] = function.get("name") or call[1]
            call[2] += function.get("arguments") or ""
        own.content += (choice.get("logprobs") or {}).get("content") or ()
        own.token_ids += choice.get("token_ids") or ()
        if choice.get("finish_reason"):
            own.finish = finish(choice)
        return Delta(text, reasoning)

    def answers(self, extra: Mapping[str, Any]) -> Sequence[Answer]:
        """Raises BrokenAnswer when the stream ended before its choices."""
        if any(own.finish is None for own in self._choices):
            raise BrokenAnswer("the stream ended before its finish reason")
        return [self._ended(own, extra) for own in self._choices]

    def _ended(self, own: _Growing, extra: Mapping[str, Any]) -> Answer:
        meta = {**self._meta, **extra, "finish_reason": own.finish}
        if self._wanted is not None:
            choice = {"logprobs": {"content": own.content}, "token_ids": own.token_ids}
            meta |= _output_logprobs(choice, self._wanted)
        calls = tuple(ToolCall(*own.calls[index]) for index in sorted(own.calls))
        return Answer("".join(own.text), "".join(own.reasoning), calls, meta)
