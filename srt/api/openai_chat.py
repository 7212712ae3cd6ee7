"""POST /v1/chat/completions.

    body -> messages -> prompt ids -> generation -> one `chat.completion`, or chunks:
    role chunk with empty content, contents, one finish chunk per choice, usage chunk if asked

Everything that can be refused is refused before the first byte of a response.
"""

from __future__ import annotations

from array import array

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.choice import Delta
from ..tokenizer.encode import Tokenizer
from ..tokenizer.generation import Generation
from .chat_messages import check_features, read_messages
from .generating import JobOptions, make_job, new_rid, read_scope, while_connected
from .logprobs import chat_content
from .openai_common import AnswerPlan, Frame, Members, read_openai, respond
from .sampling import CHAT, CHAT_NEW, Sampling, from_openai, top_logprobs
from .schema import ChatRequest
from .service import WEIGHT_VERSION, Service


class ChatRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        body = await read_openai(service, request, ChatRequest)
        check_features(body)
        plan = AnswerPlan(body, has_logprobs=bool(body.logprobs))
        model = service.check_model(body.model)
        options = self._options(body, request, plan)
        rid = new_rid(body.rid)
        ids = await while_connected(request, self._prompt_ids(body))
        generation = service.frontend.submit(
            [make_job(service, ids, options)], rid=rid, is_streaming=plan.is_streaming
        )
        kind = "chat.completion.chunk" if plan.is_streaming else "chat.completion"
        frame = Frame(service, generation, model, plan, kind)
        answer = ChatAnswer(service.tokenizer, generation, frame)
        return await respond(request, generation, answer, is_streaming=plan.is_streaming)

    def _options(self, body: ChatRequest, request: Request, plan: AnswerPlan) -> JobOptions:
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

    def __init__(self, tokenizer: Tokenizer, generation: Generation, frame: Frame) -> None:
        self._tokenizer = tokenizer
        self._generation = generation
        self._frame = frame

    def body(self, deltas: list[Delta]) -> Members:
        body = self._frame.body(deltas, self._choice)
        body["metadata"] = {"weight_version": WEIGHT_VERSION}
        if self._frame.plan.has_token_ids:
            body["prompt_token_ids"] = self._prompt_token_ids()
        return body

    def _choice(self, delta: Delta) -> Members:
        message = {
            "role": "assistant",
            "content": delta.text,
            "reasoning_content": None,
            "reasoning": None,
            "tool_calls": None,
        }
        return {"message": message, "logprobs": self._logprobs(delta)}

    def _logprobs(self, delta: Delta) -> Members | None:
        if not self._frame.plan.has_logprobs:
            return None
        return {"content": chat_content(self._tokenizer, delta)}

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
        return self._frame.write(delta, self._fields, b'"delta":{},"logprobs":null')

    def _fields(self, delta: Delta) -> bytes:
        text, logprobs = orjson.dumps(delta.text), orjson.dumps(self._logprobs(delta))
        return b'"delta":{"content":%b},"logprobs":%b' % (text, logprobs)

    def end(self) -> bytes:
        return self._frame.end()
