"""What chat and text completions share around their choices.

    read_openai -> (the route: prompt, options, generation) -> Frame -> respond

Owns the refusals that need only the body, the part of an answer that is the same in both dialects
(head, usage, how a choice ends), and when a delta is worth a chunk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.choice import Delta
from ..tokenizer.generation import Generation
from .answering import EventWriter, collect, stream
from .bodies import JsonResponse
from .chunks import ChunkSpelling
from .later import ChatLater, OpenAILater, refuse
from .reading import decode, read_body
from .sampling import top_logprobs
from .schema import ChatRequest, OpenAIFields
from .scoring import spell
from .service import Service
from .usage import UsageSum

Body = TypeVar("Body", bound=OpenAIFields)
Members = dict[str, object]  # of a JSON object


class AnswerPlan:
    """Which extra facts an answer carries. Raises BadRequest for stream options alone, and for
    prompt_logprobs out of range or of a stream.
    """

    def __init__(self, body: OpenAIFields, *, num_top: int | None) -> None:
        """`num_top`: how many likeliest tokens of each position; None: no logprobs of output."""
        options = body.stream_options
        self.is_streaming = bool(body.stream)
        if options is not None and not self.is_streaming:
            raise BadRequest("stream_options needs stream: true", param="stream_options")
        self.has_usage_chunk = options is not None and bool(options.include_usage)
        self.has_running_usage = options is not None and bool(options.continuous_usage_stats)
        self.has_token_ids = bool(body.return_token_ids)
        self.has_cached_tiers = bool(body.return_cached_tokens_details)
        self.has_logprobs = num_top is not None
        self.num_top = num_top or 0
        self.prompt_top = self._prompt_top(body)  # None: no prompt_logprobs

    @property
    def engine_top(self) -> int | None:
        """What is asked of the engine: it has one number for prompt and output."""
        if self.prompt_top is None:
            return self.num_top if self.has_logprobs else None
        return max(self.num_top, self.prompt_top)

    def _prompt_top(self, body: OpenAIFields) -> int | None:
        asked = body.prompt_logprobs
        if asked is None or asked is False:
            return None
        if self.is_streaming:
            raise BadRequest("prompt_logprobs cannot be streamed", param="prompt_logprobs")
        return top_logprobs(int(asked), "prompt_logprobs")


class Frame:
    """One answer but for what its dialect says of a choice. `kind` is its member `object`."""

    def __init__(
        self, service: Service, generation: Generation, model: str, plan: AnswerPlan, kind: str
    ) -> None:
        self.plan = plan
        self._has_usage_chunk = plan.has_usage_chunk or service.config.api.usage_chunk
        self._usage = UsageSum(generation.choices, has_cache_report=service.config.net.cache_report)
        self._head: Members = {
            "id": generation.rid,
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }
        self.chunks = ChunkSpelling(
            self._head, self._usage, has_running_usage=plan.has_running_usage
        )

    def body(self, deltas: list[Delta], own: Callable[[Delta], Members]) -> Members:
        """The whole answer; `own` gives a choice's members of the dialect."""
        for delta in deltas:
            self._usage.add(delta)
        choices = [self._choice(delta, own(delta)) for delta in deltas]
        body = {**self._head, "choices": choices, "usage": self._usage.body()}
        return body | (self._usage.extension() if self.plan.has_cached_tiers else {})

    def _choice(self, delta: Delta, own: Members) -> Members:
        choice = {
            "index": delta.index,
            **own,
            "finish_reason": delta.ending.reason if delta.ending else None,
            "matched_stop": delta.ending.matched if delta.ending else None,
        }
        if self.plan.has_token_ids:
            choice["token_ids"] = delta.token_ids
        return choice

    def reasoned(self, index: int, tokens: int) -> None:
        self._usage.reasoned(index, tokens)

    def has_token_news(self, delta: Delta) -> bool:
        """The tokens of a delta are worth a chunk, even without text."""
        return bool(delta.token_ids) and (self.plan.has_logprobs or self.plan.has_token_ids)

    def write(self, delta: Delta, fields: Sequence[bytes], last: bytes) -> bytes:
        """A chunk for each of `fields`, and the end. `last` is what the dialect says of an end."""
        self._usage.add(delta)
        events = []
        for i, own in enumerate(fields):
            if self.plan.has_token_ids and i == 0:
                own += b',"token_ids":' + orjson.dumps(delta.token_ids)
            events.append(self.chunks.choice(delta.index, own))
        if delta.ending is not None:
            events.append(self.chunks.choice(delta.index, last, delta.ending))
        return b"".join(events)

    def end(self) -> bytes:
        """Chunks without choices."""
        members: list[Members] = []
        if self.plan.has_cached_tiers:
            members.append(self._usage.extension())
        if self._has_usage_chunk:
            members.append({"usage": self._usage.body()})
        return b"".join(self.chunks.closing(own) for own in members)


class Answer(EventWriter, Protocol):
    """One generation in a dialect, whole or as events."""

    def body(self, deltas: list[Delta]) -> Members: ...


async def read_openai(service: Service, request: Request, fields: type[Body]) -> Body:
    """Raises what forbids serving, BadRequest and NotSupported."""
    service.frontend.check_serving()
    data = await read_body(request, service.config.net.max_body_bytes)
    body = decode(data, fields)
    refuse(data, ChatLater if issubclass(fields, ChatRequest) else OpenAILater)
    return body


async def respond(
    request: Request, generation: Generation, answer: Answer, *, is_streaming: bool
) -> ASGIApp:
    """Raises what ended the generation before its first delta."""
    if is_streaming:
        return await stream(request, generation, answer)
    deltas = await collect(request, generation)
    return await spell(generation, lambda: JsonResponse(answer.body(deltas)))
