"""POST /v1/completions: a prompt (text or ids, one or many) continued.

Choices are prompt-major. Chunks always carry one choice, except the usage chunk asked for.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import cast

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.choice import Delta
from ..tokenizer.encode import Tokenizer
from ..tokenizer.generation import Generation
from .generating import JobOptions, check_outputs, make_job, new_rid, read_scope, while_connected
from .later import not_supported
from .logprobs import CompletionLogprobs
from .openai_common import AnswerPlan, Frame, Members, read_openai, respond
from .sampling import COMPLETION, from_openai, top_logprobs
from .schema import CompletionRequest
from .service import Service


class CompletionRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        body = await read_openai(service, request, CompletionRequest)
        plan = AnswerPlan(body, has_logprobs=body.logprobs is not None)
        model = service.check_model(body.model)
        options = self._options(body, request, plan)
        rid = new_rid(body.rid)
        prompts = await while_connected(request, self._prompts(body, options.sampling.n))
        jobs = [make_job(service, ids, options) for ids in prompts]
        generation = service.frontend.submit(jobs, rid=rid, is_streaming=plan.is_streaming)
        frame = Frame(service, generation, model, plan, "text_completion")
        answer = CompletionAnswer(service.tokenizer, generation, frame)
        return await respond(request, generation, answer, is_streaming=plan.is_streaming)

    def _options(self, body: CompletionRequest, request: Request, plan: AnswerPlan) -> JobOptions:
        sampling = self._service.sampling.read(from_openai(body), COMPLETION)
        if body.best_of is not None and body.best_of != sampling.n:
            raise not_supported("best_of", f"other than n, which is {sampling.n}")
        return JobOptions(
            sampling=sampling,
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=top_logprobs(body.logprobs, "logprobs"),
            is_streaming=plan.is_streaming,
        )

    async def _prompts(self, body: CompletionRequest, n: int) -> list[array[int]]:
        prompt = body.prompt
        if prompt is None or len(prompt) == 0:
            raise BadRequest("prompt must not be empty", param="prompt")
        if isinstance(prompt, str):
            return [await self._service.prompts.text(prompt, "prompt")]
        if all(isinstance(item, int) for item in prompt):
            return [self._service.limits.check_ids(cast(list[int], prompt), "prompt")]
        check_outputs(len(prompt) * n, "prompt")
        found = []
        for i, item in enumerate(prompt):
            await asyncio.sleep(0)  # many texts must not hold up the streams of others
            path = f"prompt[{i}]"
            if isinstance(item, str):
                found.append(await self._service.prompts.text(item, path))
            elif isinstance(item, list):
                found.append(self._service.limits.check_ids(item, path))
            else:
                raise BadRequest("prompt mixes token ids with texts or lists", param=path)
        return found


class CompletionAnswer:
    """Spells one generation as a text completion; also the writer of its events."""

    def __init__(self, tokenizer: Tokenizer, generation: Generation, frame: Frame) -> None:
        self._generation = generation
        self._frame = frame
        self._spellings = [CompletionLogprobs(tokenizer) for _ in generation.choices]

    def body(self, deltas: list[Delta]) -> Members:
        return self._frame.body(deltas, self._choice)

    def _choice(self, delta: Delta) -> Members:
        choice: Members = {"text": delta.text, "logprobs": self._logprobs(delta)}
        if self._frame.plan.has_token_ids:
            request = self._generation.choices[delta.index].request
            choice["prompt_token_ids"] = request.prompt_ids.tolist()
        return choice

    def _logprobs(self, delta: Delta) -> Members | None:
        if not self._frame.plan.has_logprobs:
            return None
        return self._spellings[delta.index].take(delta)

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        is_news = bool(delta.text) or self._frame.has_token_news(delta)
        fields = [self._fields(delta)] if is_news else []
        return self._frame.write(delta, fields, b'"text":"","logprobs":null')

    def _fields(self, delta: Delta) -> bytes:
        text, logprobs = orjson.dumps(delta.text), orjson.dumps(self._logprobs(delta))
        return b'"text":%b,"logprobs":%b' % (text, logprobs)

    def end(self) -> bytes:
        return self._frame.end()
