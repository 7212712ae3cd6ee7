"""POST /v1/completions: a prompt (text or ids, one or many) continued.

Choices are prompt-major. Chunks always carry one choice, except the usage chunk asked for.
"""

from __future__ import annotations

import time
from array import array
from typing import cast

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.choice import Delta
from ..tokenizer.generation import Generation
from .answering import collect, stream
from .bodies import JsonResponse
from .chunks import NULL, ChunkSpelling
from .generating import JobOptions, check_total, make_job, new_rid, read_scope, while_connected
from .later import OpenAILater, not_supported, refuse, refuse_prompt_logprobs
from .logprobs import CompletionLogprobs
from .openai_common import StreamPlan
from .reading import decode, read_body
from .sampling import COMPLETION, from_openai, top_logprobs
from .schema import CompletionRequest
from .service import Service
from .usage import UsageSum


class CompletionRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        service.frontend.check_serving()
        data = await read_body(request, service.config.net.max_body_bytes)
        body = decode(data, CompletionRequest)
        refuse(data, OpenAILater)
        refuse_prompt_logprobs(data)
        plan, model = StreamPlan(body), service.check_model(body.model)
        options = self._options(body, request, plan)
        rid = new_rid(body.rid)
        prompts = await while_connected(request, self._prompts(body))
        jobs = [make_job(service, ids, options) for ids in prompts]
        check_total(jobs, "prompt")
        generation = service.frontend.submit(jobs, rid=rid, is_streaming=plan.is_streaming)
        has_logprobs = body.logprobs is not None
        answer = CompletionAnswer(service, generation, model, plan, has_logprobs=has_logprobs)
        if plan.is_streaming:
            return await stream(request, generation, answer)
        return JsonResponse(answer.body(await collect(request, generation)))

    def _options(self, body: CompletionRequest, request: Request, plan: StreamPlan) -> JobOptions:
        sampling = self._service.sampling.read(from_openai(body), COMPLETION)
        if body.best_of is not None and body.best_of != sampling.n:
            raise not_supported("best_of", f"other than n, which is {sampling.n}")
        return JobOptions(
            sampling=sampling,
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=top_logprobs(body.logprobs, "logprobs"),
            is_streaming=plan.is_streaming,
        )

    async def _prompts(self, body: CompletionRequest) -> list[array[int]]:
        prompt = body.prompt
        if prompt is None or len(prompt) == 0:
            raise BadRequest("prompt must not be empty", param="prompt")
        if isinstance(prompt, str):
            return [await self._service.prompts.text(prompt, "prompt")]
        if all(isinstance(item, int) for item in prompt):
            return [self._service.limits.check_ids(cast(list[int], prompt), "prompt")]
        found = []
        for i, item in enumerate(prompt):
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

    def __init__(
        self,
        service: Service,
        generation: Generation,
        model: str,
        plan: StreamPlan,
        *,
        has_logprobs: bool,
    ) -> None:
        self._generation = generation
        self._plan = plan
        self._logprobs = (
            [CompletionLogprobs(service.tokenizer) for _ in generation.choices]
            if has_logprobs
            else []
        )
        self._usage = UsageSum(generation.choices, has_cache_report=service.config.net.cache_report)
        self._head: dict[str, object] = {
            "id": generation.rid,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._chunks = ChunkSpelling(
            self._head, self._usage, has_running_usage=plan.has_running_usage
        )

    def body(self, deltas: list[Delta]) -> dict[str, object]:
        for delta in deltas:
            self._usage.add(delta)
        choices = [self._choice(delta) for delta in deltas]
        return {**self._head, "choices": choices, "usage": self._usage.body()}

    def _choice(self, delta: Delta) -> dict[str, object]:
        choice: dict[str, object] = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": self._logprobs[delta.index].take(delta) if self._logprobs else None,
            "finish_reason": delta.ending.reason if delta.ending else None,
            "matched_stop": delta.ending.matched if delta.ending else None,
        }
        if self._plan.has_token_ids:
            choice["token_ids"] = delta.token_ids
            request = self._generation.choices[delta.index].request
            choice["prompt_token_ids"] = request.prompt_ids.tolist()
        return choice

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        self._usage.add(delta)
        events = b""
        if delta.text or (delta.token_ids and (self._logprobs or self._plan.has_token_ids)):
            fields = b'"text":%b,"logprobs":%b' % (
                orjson.dumps(delta.text),
                orjson.dumps(self._logprobs[delta.index].take(delta)) if self._logprobs else NULL,
            )
            if self._plan.has_token_ids:
                fields += b',"token_ids":' + orjson.dumps(delta.token_ids)
            events = self._chunks.choice(delta.index, fields)
        if delta.ending is not None:
            fields = b'"text":"","logprobs":null'
            events += self._chunks.choice(delta.index, fields, delta.ending)
        return events

    def end(self) -> bytes:
        return self._chunks.usage() if self._plan.has_usage_chunk else b""
