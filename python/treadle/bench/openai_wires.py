"""Routes of OpenAI's API. No token counts in events: each that brings something is one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .asks import Ask, Event, Json, Options, Reading
from .wire import prompt_field, read_tiers


@dataclass(frozen=True, slots=True)
class CompletionsWire:
    """`has_tiers`: the server may be asked for them; others refuse fields that they do not know."""

    has_tiers: bool
    path = "/v1/completions"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        body = _openai(options, has_tiers=self.has_tiers)
        body |= prompt_field(ask.prompt, text="prompt", ids="prompt")
        body["max_tokens"] = ask.output_len
        if options.top_logprobs >= 0:
            body["logprobs"] = options.top_logprobs
        return body | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        return _read_choices(events)


@dataclass(frozen=True, slots=True)
class ChatWire:
    """`has_tiers` as above."""

    has_tiers: bool
    path = "/v1/chat/completions"
    is_chat = True

    def body(self, ask: Ask, options: Options) -> Json:
        if not isinstance(ask.prompt, tuple):
            raise ValueError("a chat backend takes messages, no token ids")
        shown = [{"role": message.role, "content": message.content} for message in ask.prompt]
        body = _openai(options, has_tiers=self.has_tiers)
        body |= {"messages": shown, "max_completion_tokens": ask.output_len}
        if options.top_logprobs >= 0:
            body |= {"logprobs": True, "top_logprobs": options.top_logprobs}
        return body | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        return _read_choices(events)


class EmbeddingWire:
    """The answer is no text: it counts as one arrival without a token. What would steer a
    generation is not sent.
    """

    path = "/v1/embeddings"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        if options.top_logprobs >= 0:
            raise ValueError("logprobs are not for the backend sglang-embedding")
        body: Json = {"model": options.lora or options.model}
        return body | prompt_field(ask.prompt, text="input", ids="input") | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        answer = events[-1]
        if not answer.data["data"][0]["embedding"]:
            raise TypeError("an empty embedding")
        prompt_tokens = (answer.data.get("usage") or {}).get("prompt_tokens", 0)
        return Reading(arrivals=((answer.at_s, 0),), prompt_tokens=prompt_tokens)


def _openai(options: Options, *, has_tiers: bool) -> Json:
    body: Json = {
        "model": options.lora or options.model,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stream": options.stream,
        "ignore_eos": options.ignore_eos,
    }
    if options.wants_tiers and has_tiers:
        body["return_cached_tokens_details"] = True
    return body | ({"stream_options": {"include_usage": True}} if options.stream else {})


def _read_choices(events: Sequence[Event]) -> Reading:
    arrivals: list[tuple[float, int]] = []
    texts: list[str] = []
    usage: Json = {}
    extension: Json = {}
    for event in events:
        usage = event.data.get("usage") or usage
        extension = event.data.get("sglext") or extension
        for choice in event.data["choices"]:
            text, is_token = _piece(choice)
            texts.append(text)
            if is_token:
                arrivals.append((event.at_s, 1))
    details = usage.get("prompt_tokens_details") or {}
    tiers = read_tiers(extension.get("cached_tokens_details"))
    in_tiers = tiers.device + tiers.host + tiers.storage if tiers else None
    return Reading(
        arrivals=tuple(arrivals),
        text="".join(texts),
        prompt_tokens=usage.get("prompt_tokens", 0),
        output_tokens=usage.get("completion_tokens", len(arrivals)),
        cached=details.get("cached_tokens", in_tiers),
        replayed=details.get("replayed_tokens") or 0,
        tiers=tiers,
    )


def _piece(choice: Json) -> tuple[str, bool]:
    """Text of a chunk, and whether it brought a token: a tool call or reasoning is one too."""
    if "text" in choice:
        text: str = choice["text"] or ""
        return text, bool(text)
    delta = choice.get("delta") or choice.get("message") or {}
    text = delta.get("content") or ""
    more = ("reasoning_content", "reasoning", "tool_calls")
    return text, bool(text) or any(delta.get(name) for name in more)
