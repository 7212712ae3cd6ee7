"""POST /v1/messages and /v1/messages/count_tokens.

    body -> chat messages -> prompt ids -> generation -> one message, or events named as Anthropic's

The error bodies of these routes are Anthropic's too (`bodies.py`), whoever refuses.
"""

from __future__ import annotations

import secrets
from array import array

from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest, TreadleError
from ..messages import Usage
from ..tokenizer.choice import Delta
from ..tokenizer.generation import Generation
from ..tokenizer.prompts import Conversation
from .answering import Framing, collect, stream
from .anthropic_blocks import (
    BlockEvents,
    Members,
    WholeBlocks,
    named_event,
    stop_members,
    usage_body,
)
from .anthropic_messages import chat_messages
from .anthropic_schema import CountRequest, MessagesLater, MessagesRequest
from .bodies import JsonResponse, anthropic_error_body
from .chat_messages import read_messages
from .generating import JobOptions, make_job, new_rid, read_scope, while_connected
from .later import not_supported, refuse
from .reading import decode, read_body
from .sampling import Dialect, Sampling
from .schema import SamplingFields
from .service import Service

DIALECT = Dialect(
    None,
    is_openai=True,
    names={
        "max_new_tokens": "max_tokens",
        "min_new_tokens": "min_tokens",
        "sampling_seed": "seed",
        "stop": "stop_sequences",
    },
)
THINKING = ("enabled", "adaptive", "disabled")
TOOL_CHOICES = ("auto", "any", "tool", "none")


class MessagesRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        service.frontend.check_serving()
        data = await read_body(request, service.config.net.max_body_bytes)
        body = decode(data, MessagesRequest)
        refuse(data, MessagesLater)
        model = service.check_model(body.model)
        is_streaming = bool(body.stream)
        options = JobOptions(
            sampling=self._sampling(body),
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=None,
            is_streaming=is_streaming,
        )
        rid = new_rid(body.rid) if body.rid else f"msg_{secrets.token_hex(12)}"
        ids = await while_connected(request, self._prompt_ids(body))
        generation = service.frontend.submit(
            [make_job(service, ids, options)], rid=rid, is_streaming=is_streaming
        )
        answer = Message(generation, model, has_cache_report=service.config.net.cache_report)
        if is_streaming:
            return await stream(request, generation, answer, FRAMING)
        return JsonResponse(answer.body(await collect(request, generation)))

    async def count(self, request: Request) -> ASGIApp:
        service = self._service
        data = await read_body(request, service.config.net.max_body_bytes)
        body = decode(data, CountRequest)
        refuse(data, MessagesLater)
        service.check_model(body.model)
        read_scope(body, request, body.extra_key)  # refused here too
        ids = await while_connected(request, service.prompts.encode_chat(self._conversation(body)))
        return JsonResponse({"input_tokens": len(ids)})

    def _sampling(self, body: MessagesRequest) -> Sampling:
        if body.max_tokens is None:
            raise BadRequest("max_tokens must be given", param="max_tokens")
        fields = SamplingFields(
            max_new_tokens=body.max_tokens,
            min_new_tokens=body.min_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            min_p=body.min_p,
            repetition_penalty=body.repetition_penalty,
            stop=body.stop_sequences,
            stop_token_ids=body.stop_token_ids,
            ignore_eos=body.ignore_eos,
            sampling_seed=body.seed,
        )
        return self._service.sampling.read(fields, DIALECT)

    async def _prompt_ids(self, body: MessagesRequest) -> array[int]:
        return await self._service.prompts.chat(self._conversation(body), "messages")

    def _conversation(self, body: CountRequest) -> Conversation:
        _check_tools(body)
        if body.output_config is not None and body.output_config.format is not None:
            raise not_supported("output_config.format")
        messages = chat_messages(body)
        return read_messages(
            messages,
            continue_final=messages[-1].role == "assistant",
            add_prompt=None,
            extra=_template_variables(body),
        )


def _template_variables(body: CountRequest) -> dict[str, object]:
    """Both names by which templates know the switch; without `thinking` it is the template's."""
    extra: dict[str, object] = dict(body.chat_template_kwargs or {})
    if body.output_config is not None and body.output_config.effort is not None:
        extra.setdefault("reasoning_effort", body.output_config.effort)
    thinking = body.thinking
    if thinking is None:
        return extra
    if thinking.type not in THINKING:
        raise BadRequest(
            f"thinking.type must be one of {', '.join(THINKING)}, got {thinking.type!r}",
            param="thinking.type",
        )
    if thinking.budget_tokens is not None and thinking.budget_tokens < 1:
        raise BadRequest(
            f"thinking.budget_tokens must be at least 1, got {thinking.budget_tokens}",
            param="thinking.budget_tokens",
        )
    for name in ("enable_thinking", "thinking"):
        extra.setdefault(name, thinking.type != "disabled")
    return extra


def _check_tools(body: CountRequest) -> None:
    choice, tools = body.tool_choice, body.tools or []
    if choice is not None and choice.type not in TOOL_CHOICES:
        raise BadRequest(
            f"tool_choice.type must be one of {', '.join(TOOL_CHOICES)}, got {choice.type!r}",
            param="tool_choice.type",
        )
    if choice is not None and choice.type in ("any", "tool") and not tools:
        raise BadRequest(f"tool_choice {choice.type!r} needs tools", param="tool_choice")
    if tools and (choice is None or choice.type != "none"):
        raise not_supported("tools", "only tool_choice 'none' is")


class Message:
    """Spells one generation as a message; also the writer of its events."""

    def __init__(self, generation: Generation, model: str, *, has_cache_report: bool) -> None:
        self._head: Members = {
            "id": generation.rid,
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._has_cache_report = has_cache_report
        self._blocks = BlockEvents()
        self._is_started = False

    def body(self, deltas: list[Delta]) -> Members:
        blocks = WholeBlocks()
        (delta,) = deltas
        if delta.text:
            blocks.text(delta.text)
        stop = stop_members(delta.ending) if delta.ending else _NOT_STOPPED
        usage = self._usage(delta.usage)
        return {**self._head, "content": blocks.content(), **stop, "usage": usage}

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        """The first delta begins the message, for only then its cached tokens are known."""
        parts = [] if self._is_started else [self._start(delta.usage)]
        self._is_started = True
        if delta.text:
            parts.append(self._blocks.text(delta.text))
        if delta.ending is not None:
            parts.append(self._blocks.close())
            members = {"delta": stop_members(delta.ending), "usage": self._usage(delta.usage)}
            parts.append(named_event("message_delta", members))
        return b"".join(parts)

    def end(self) -> bytes:
        return named_event("message_stop", {})

    def _start(self, usage: Usage) -> bytes:
        message = {**self._head, "content": [], **_NOT_STOPPED, "usage": self._usage(usage)}
        return named_event("message_start", {"message": message}) + named_event("ping", {})

    def _usage(self, usage: Usage) -> Members:
        return usage_body(usage, has_cache_report=self._has_cache_report)


_NOT_STOPPED: Members = {"stop_reason": None, "stop_sequence": None}


def _error(error: TreadleError) -> bytes:
    return named_event("error", anthropic_error_body(error))


FRAMING = Framing(done=b"", error=_error)
