"""How each kind of server is asked and what its events say. Pure: no I/O.

    name                     path                    prompts          tells
    sglang, sglang-native    /generate               text, ids        ids, cached, replayed
    llama.cpp                /completion             text, ids        ids, cached
    sglang-oai, vllm, openai /v1/completions         text, ids        cached, if usage has it
    sglang-oai-chat, ...     /v1/chat/completions    messages         cached, if usage has it
    sglang-embedding         /v1/embeddings          text, ids        nothing; it has no output

Servers that send no token counts with their events are taken to send one token with each.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .asks import Ask, Event, Json, Options, Prompt, Reading, Tiers


class Wire(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def is_chat(self) -> bool: ...

    def body(self, ask: Ask, options: Options) -> Json:
        """Raises ValueError for a prompt of a kind that this route does not take."""

    def read(self, events: Sequence[Event]) -> Reading:
        """Raises KeyError, IndexError or TypeError for events of another form."""


class NativeWire:
    """Cumulative events."""

    path = "/generate"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        sampling = {
            "temperature": options.temperature,
            "top_p": options.top_p,
            "max_new_tokens": ask.output_len,
            "ignore_eos": options.ignore_eos,
        }
        body: Json = {"sampling_params": sampling, "stream": options.stream}
        body |= _one_of(ask.prompt, text="text", ids="input_ids")
        if options.top_logprobs >= 0:
            body |= {"return_logprob": True, "logprob_start_len": options.logprob_start}
            body |= {"top_logprobs_num": options.top_logprobs}
        if options.lora:
            body["lora_path"] = options.lora
        return body | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        arrivals: list[tuple[float, int]] = []
        count = 0
        for event in events:
            now = event.data["meta_info"]["completion_tokens"]
            if now > count:
                arrivals.append((event.at_s, now - count))
            count = now
        last = events[-1].data
        meta = last["meta_info"]
        ids = last.get("output_ids")
        return Reading(
            arrivals=tuple(arrivals),
            text=last.get("text", ""),
            output_ids=None if ids is None else tuple(ids),
            prompt_tokens=meta["prompt_tokens"],
            output_tokens=count,
            cached=meta.get("cached_tokens"),
            replayed=meta.get("replayed_tokens", 0),
            tiers=_tiers(meta.get("cached_tokens_details")),
        )


class LlamaWire:
    """Events with the new tokens; greedy requests get the shortest sampler chain."""

    path = "/completion"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        if options.top_logprobs >= 0 or options.lora:
            raise ValueError("logprobs and lora-name are not for the backend llama.cpp")
        body = _one_of(ask.prompt, text="prompt", ids="prompt")
        body |= {"n_predict": ask.output_len, "stream": options.stream, "return_tokens": True}
        body |= {"cache_prompt": True, "ignore_eos": options.ignore_eos}
        if options.temperature == 0:
            return body | {"samplers": ["top_k"], "top_k": 1} | options.extra
        sampling = {"temperature": options.temperature, "top_p": options.top_p}
        return body | sampling | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        found = [(event.at_s, event.data.get("tokens", [])) for event in events]
        timings = events[-1].data["timings"]
        ids = tuple(token for _, tokens in found for token in tokens)
        return Reading(
            arrivals=tuple((at_s, len(tokens)) for at_s, tokens in found if tokens),
            text="".join(event.data.get("content", "") for event in events),
            output_ids=ids,
            prompt_tokens=timings["prompt_n"] + timings["cache_n"],
            output_tokens=len(ids),
            cached=timings["cache_n"],
        )


@dataclass(frozen=True, slots=True)
class CompletionsWire:
    """`has_tiers`: the server may be asked for them; others refuse fields that they do not know."""

    has_tiers: bool
    path = "/v1/completions"
    is_chat = False

    def body(self, ask: Ask, options: Options) -> Json:
        body = _openai(options, has_tiers=self.has_tiers)
        body |= _one_of(ask.prompt, text="prompt", ids="prompt")
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
        return body | _one_of(ask.prompt, text="input", ids="input") | options.extra

    def read(self, events: Sequence[Event]) -> Reading:
        answer = events[-1]
        if not answer.data["data"][0]["embedding"]:
            raise TypeError("an empty embedding")
        prompt_tokens = (answer.data.get("usage") or {}).get("prompt_tokens", 0)
        return Reading(arrivals=((answer.at_s, 0),), prompt_tokens=prompt_tokens)


WIRES: dict[str, Wire] = {
    "sglang": NativeWire(),
    "sglang-native": NativeWire(),
    "llama.cpp": LlamaWire(),
    "sglang-oai": CompletionsWire(has_tiers=True),
    "vllm": CompletionsWire(has_tiers=False),
    "openai": CompletionsWire(has_tiers=False),
    "sglang-oai-chat": ChatWire(has_tiers=True),
    "vllm-chat": ChatWire(has_tiers=False),
    "openai-chat": ChatWire(has_tiers=False),
    "sglang-embedding": EmbeddingWire(),
}
# The chat route of the same server.
CHAT_OF = {
    "sglang": "sglang-oai-chat",
    "sglang-native": "sglang-oai-chat",
    "sglang-oai": "sglang-oai-chat",
    "llama.cpp": "openai-chat",
    "openai": "openai-chat",
    "vllm": "vllm-chat",
}
# Who `/v1/models` says that owns the model -> how to ask; another name: openai.
BY_OWNER = {"sglang": "sglang", "llamacpp": "llama.cpp", "vllm": "vllm"}


def _one_of(prompt: Prompt, *, text: str, ids: str) -> Json:
    if isinstance(prompt, str):
        return {text: prompt}
    if isinstance(prompt, array):
        return {ids: prompt.tolist()}
    raise ValueError("messages are for a chat backend, such as openai-chat")


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
    tiers = _tiers(extension.get("cached_tokens_details"))
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


def _tiers(told: Json | None) -> Tiers | None:
    if told is None:
        return None
    device, host, storage = (told.get(name) or 0 for name in ("device", "host", "storage"))
    return Tiers(device, host, storage, told.get("storage_backend"))


def _piece(choice: Json) -> tuple[str, bool]:
    """Text of a chunk, and whether it brought a token: a tool call or reasoning is one too."""
    if "text" in choice:
        text: str = choice["text"] or ""
        return text, bool(text)
    delta = choice.get("delta") or choice.get("message") or {}
    text = delta.get("content") or ""
    more = ("reasoning_content", "reasoning", "tool_calls")
    return text, bool(text) or any(delta.get(name) for name in more)
