"""POST /v1/chat/completions.

    body -> messages -> prompt ids -> generation -> one `chat.completion`, or chunks:
    role chunk with empty content, contents, one finish chunk per choice, usage chunk if asked

Everything that can be refused is refused before the first byte of a response.
"""

from __future__ import annotations

import time
from array import array

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.choice import Delta
from ..tokenizer.generation import Generation
from .answering import collect, stream
from .bodies import JsonResponse
from .chat_messages import check_features, read_messages
from .chunks import NULL, ChunkSpelling
from .generating import JobOptions, make_job, new_rid, read_scope, while_connected
from .later import OpenAILater, refuse, refuse_prompt_logprobs
from .logprobs import chat_content
from .openai_common import StreamPlan
from .reading import decode, read_body
from .sampling import CHAT, CHAT_NEW, Sampling, from_openai, top_logprobs
from .schema import ChatRequest
from .service import WEIGHT_VERSION, Service
from .usage import UsageSum


class ChatRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        service.frontend.check_serving()
        data = await read_body(request, service.config.net.max_body_bytes)
        body = decode(data, ChatRequest)
        refuse(data, OpenAILater)
        refuse_prompt_logprobs(data)
        check_features(body)
        plan, model = StreamPlan(body), service.check_model(body.model)
        options = self._options(body, request, plan)
        rid = new_rid(body.rid)
        ids = await while_connected(request, self._prompt_ids(body))
        generation = service.frontend.submit(
            [make_job(service, ids, options)], rid=rid, is_streaming=plan.is_streaming
        )
        answer = ChatAnswer(service, generation, model, plan, has_logprobs=bool(body.logprobs))
        if plan.is_streaming:
            return await stream(request, generation, answer)
        return JsonResponse(answer.body(await collect(request, generation)))

    def _options(self, body: ChatRequest, request: Request, plan: StreamPlan) -> JobOptions:
        if body.top_logprobs and not body.logprobs:
            raise BadRequest("top_logprobs needs logprobs: true", param="top_logprobs")
        top = top_logprobs(body.top_logprobs, "top_logprobs")
        return JobOptions(
            sampling=self._sampling(body),
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=(top or 0) if body.logprobs else None,
            is_streaming=plan.is_streaming,
        )

    def _sampling(self, body: ChatRequest) -> Sampling:
        dialect = CHAT if body.max_completion_tokens is None else CHAT_NEW
        return self._service.sampling.read(from_openai(body), dialect)

    async def _prompt_ids(self, body: ChatRequest) -> array[int]:
        if body.input_ids is not None:
            return self._service.limits.check_ids(body.input_ids, "input_ids")
        extra: dict[str, object] = dict(body.chat_template_kwargs or {})
        if body.reasoning_effort is not None:
            extra.setdefault("reasoning_effort", body.reasoning_effort)
        conversation = read_messages(
            body.messages,
            continue_final=body.continue_final_message,
            add_prompt=body.add_generation_prompt,
            extra=extra,
        )
        return await self._service.prompts.chat(conversation, "messages")


class ChatAnswer:
    """Spells one generation as a chat completion; also the writer of its events."""

    def __init__(
        self,
        service: Service,
        generation: Generation,
        model: str,
        plan: StreamPlan,
        *,
        has_logprobs: bool,
    ) -> None:
        self._tokenizer = service.tokenizer
        self._generation = generation
        self._plan = plan
        self._has_logprobs = has_logprobs
        self._usage = UsageSum(generation.choices, has_cache_report=service.config.net.cache_report)
        kind = "chat.completion.chunk" if plan.is_streaming else "chat.completion"
        self._head: dict[str, object] = {
            "id": generation.rid,
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }
        self._chunks = ChunkSpelling(
            self._head, self._usage, has_running_usage=plan.has_running_usage
        )

    def body(self, deltas: list[Delta]) -> dict[str, object]:
        for delta in deltas:
            self._usage.add(delta)
        body = {
            **self._head,
            "choices": [self._choice(delta) for delta in deltas],
            "usage": self._usage.body(),
            "metadata": {"weight_version": WEIGHT_VERSION},
        }
        if self._plan.has_token_ids:
            body["prompt_token_ids"] = self._prompt_token_ids()
        return body

    def _choice(self, delta: Delta) -> dict[str, object]:
        choice: dict[str, object] = {
            "index": delta.index,
            "message": {
                "role": "assistant",
                "content": delta.text,
                "reasoning_content": None,
                "reasoning": None,
                "tool_calls": None,
            },
            "logprobs": {"content": chat_content(self._tokenizer, delta)}
            if self._has_logprobs
            else None,
            "finish_reason": delta.ending.reason if delta.ending else None,
            "matched_stop": delta.ending.matched if delta.ending else None,
        }
        if self._plan.has_token_ids:
            choice["token_ids"] = delta.token_ids
        return choice

    def _prompt_token_ids(self) -> list[int]:
        return self._generation.choices[0].request.prompt_ids.tolist()

    def begin(self) -> bytes:
        fields = b'"delta":{"role":"assistant","content":""},"logprobs":null'
        top = b""
        if self._plan.has_token_ids:
            top = b',"prompt_token_ids":' + orjson.dumps(self._prompt_token_ids())
        return b"".join(
            self._chunks.choice(choice.index, fields, top=top if choice.index == 0 else b"")
            for choice in self._generation.choices
        )

    def write(self, delta: Delta) -> bytes:
        self._usage.add(delta)
        events = b""
        if delta.text or (delta.token_ids and (self._has_logprobs or self._plan.has_token_ids)):
            fields = b'"delta":{"content":%b},"logprobs":%b' % (
                orjson.dumps(delta.text),
                orjson.dumps({"content": chat_content(self._tokenizer, delta)})
                if self._has_logprobs
                else NULL,
            )
            if self._plan.has_token_ids:
                fields += b',"token_ids":' + orjson.dumps(delta.token_ids)
            events = self._chunks.choice(delta.index, fields)
        if delta.ending is not None:
            fields = b'"delta":{},"logprobs":null'
            events += self._chunks.choice(delta.index, fields, delta.ending)
        return events

    def end(self) -> bytes:
        return self._chunks.usage() if self._plan.has_usage_chunk else b""
