"""POST and PUT /generate: text or ids in, `{text, output_ids, meta_info}` out.

Lists in or n > 1 give a JSON array, prompt-major, or stream events with `index`. Stream events are
cumulative: `native_events.py` keeps their growing parts encoded.
"""

from __future__ import annotations

import asyncio
import time
from array import array

from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.jobs import PromptJob
from .answering import collect, stream
from .bodies import JsonResponse
from .generating import JobOptions, check_outputs, make_job, new_rid, read_scope, while_connected
from .grammar import constrained, native_grammar
from .later import NativeLater, refuse
from .native_batch import Batch, Row, read_batch
from .native_events import NativeEvents, NativeResult
from .reading import decode, read_body
from .sampling import NATIVE
from .schema import GenerateBody
from .scoring import check_logprob_ids, check_scores, spell
from .service import Service


class GenerateRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        service.frontend.check_serving()
        arrived_at = time.monotonic()
        data = await read_body(request, service.config.net.max_body_bytes)
        body = decode(data, GenerateBody)
        refuse(data, NativeLater)
        batch = read_batch(body)
        rid = new_rid(body.rid if isinstance(body.rid, str) else None, request)
        options = [self._options(body, row, request) for row in batch.rows]
        if len({option.sampling.n for option in options}) > 1:
            raise BadRequest("n must be the same in a batch", param="sampling_params.n")
        check_outputs(sum(option.sampling.n for option in options), "sampling_params.n")
        jobs = await while_connected(request, self._jobs(batch, options))
        check_scores(jobs)
        is_streaming = bool(body.stream)
        generation = service.frontend.submit(jobs, rid=rid, is_streaming=is_streaming)
        tokenizer = service.tokenizer if body.return_text_in_logprobs else None
        results = [NativeResult(choice, tokenizer, arrived_at) for choice in generation.choices]
        is_list = batch.is_list or len(results) > 1
        if is_streaming:
            return await stream(request, generation, NativeEvents(results, has_index=is_list))
        deltas = await collect(request, generation)

        def answer() -> JsonResponse:
            bodies = [results[delta.index].body(delta) for delta in deltas]
            return JsonResponse(bodies if is_list else bodies[0])

        return await spell(generation, answer)

    def _options(self, body: GenerateBody, row: Row, request: Request) -> JobOptions:
        return JobOptions(
            sampling=constrained(
                self._service.sampling.read(row.sampling, NATIVE),
                native_grammar(row.sampling, NATIVE.prefix),
            ),
            scope=read_scope(body, request, row.extra_key),
            top_logprobs=row.top_logprobs,
            is_streaming=bool(body.stream),
            logprob_start=row.logprob_start,
            logprob_ids=check_logprob_ids(self._service.limits, row.logprob_ids),
        )

    async def _jobs(self, batch: Batch, options: list[JobOptions]) -> list[PromptJob]:
        jobs = []
        for row, option in zip(batch.rows, options, strict=True):
            await self._service.grammars.check(option.sampling)
            jobs.append(make_job(self._service, await self._ids(row), option, rid=row.rid))
            await asyncio.sleep(0)  # a large batch must not hold up the streams of others
        return jobs

    async def _ids(self, row: Row) -> array[int]:
        if row.text is not None:
            return await self._service.prompts.text(row.text, row.path)
        return self._service.limits.check_ids(row.ids or [], row.path)
