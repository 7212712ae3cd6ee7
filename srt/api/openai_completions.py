"""POST /v1/completions: a prompt (text or ids, one or many) continued.

Choices are prompt-major. Chunks always carry one choice, but for last ones that were asked for.
With `echo` a choice begins with its prompt, in a chunk of its own, and so do the lists of
`logprobs`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import NamedTuple, cast

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.choice import Delta
from ..tokenizer.encode import Tokenizer
from ..tokenizer.generation import Generation
from .generating import JobOptions, check_outputs, make_job, new_rid, read_scope, while_connected
from .grammar import constrained, openai_grammar
from .later import not_supported
from .logprobs import CompletionLogprobs, TextLists
from .openai_common import AnswerPlan, Frame, Members, read_openai, respond
from .sampling import COMPLETION, from_openai, top_logprobs
from .schema import CompletionRequest
from .scoring import check_scores, prompt_logprobs
from .service import Service


class Prompt(NamedTuple):
    """`text` None: it was given as ids."""

    ids: array[int]
    text: str | None


class CompletionRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        body = await read_openai(service, request, CompletionRequest)
        plan = AnswerPlan(body, num_top=top_logprobs(body.logprobs, "logprobs"))
        model = service.check_model(body.model)
        options = self._options(body, request, plan)
        rid = new_rid(body.rid, request)
        await while_connected(request, service.grammars.check(options.sampling))
        prompts = await while_connected(request, self._prompts(body, options.sampling.n))
        jobs = [make_job(service, prompt.ids, options) for prompt in prompts]
        check_scores(jobs)
        generation = service.frontend.submit(jobs, rid=rid, is_streaming=plan.is_streaming)
        frame = Frame(service, generation, model, plan, "text_completion")
        echoes = [self._echo(prompt, options) for prompt in prompts] if body.echo else []
        answer = CompletionAnswer(service.tokenizer, generation, frame, echoes)
        return await respond(request, generation, answer, is_streaming=plan.is_streaming)

    def _options(self, body: CompletionRequest, request: Request, plan: AnswerPlan) -> JobOptions:
        sampling = self._service.sampling.read(from_openai(body), COMPLETION)
        sampling = constrained(sampling, openai_grammar(body))
        if body.best_of is not None and body.best_of != sampling.n:
            raise not_supported("best_of", f"other than n, which is {sampling.n}")
        is_scored = plan.prompt_top is not None or (body.echo and plan.has_logprobs)
        return JobOptions(
            sampling=sampling,
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=plan.engine_top,
            is_streaming=plan.is_streaming,
            logprob_start=0 if is_scored else None,
        )

    def _echo(self, prompt: Prompt, options: JobOptions) -> str:
        """The prompt as text: as it was given, or what its ids spell."""
        if prompt.text is not None:
            return prompt.text
        skip_special = options.sampling.rules.skip_special_tokens
        return self._service.tokenizer.decode(prompt.ids, skip_special=skip_special)

    async def _prompts(self, body: CompletionRequest, n: int) -> list[Prompt]:
        prompt = body.prompt
        if prompt is None or len(prompt) == 0:
            raise BadRequest("prompt must not be empty", param="prompt")
        if isinstance(prompt, str):
            return [await self._text(prompt, "prompt")]
        if all(isinstance(item, int) for item in prompt):
            ids = self._service.limits.check_ids(cast(list[int], prompt), "prompt")
            return [Prompt(ids, None)]
        check_outputs(len(prompt) * n, "prompt")
        found = []
        for i, item in enumerate(prompt):
            await asyncio.sleep(0)  # many texts must not hold up the streams of others
            path = f"prompt[{i}]"
            if isinstance(item, str):
                found.append(await self._text(item, path))
            elif isinstance(item, list):
                found.append(Prompt(self._service.limits.check_ids(item, path), None))
            else:
                raise BadRequest("prompt mixes token ids with texts or lists", param=path)
        return found

    async def _text(self, text: str, path: str) -> Prompt:
        ids = await self._service.prompts.text(text, path)
        return Prompt(ids, text)


class CompletionAnswer:
    """Spells one generation as a text completion; also the writer of its events. `echoes` are the
    prompts as texts, of which there are none when they are not echoed.
    """

    def __init__(
        self, tokenizer: Tokenizer, generation: Generation, frame: Frame, echoes: Sequence[str]
    ) -> None:
        self._tokenizer = tokenizer
        self._generation = generation
        self._frame = frame
        choices = generation.choices
        n = len(choices) // len(echoes) if echoes else 0
        # by choice, as long as they have not been written
        self._echoes = {choice.index: echoes[choice.index // n] for choice in choices if echoes}
        self._spellings = [
            CompletionLogprobs(tokenizer, skip_special=choice.name.job.rules.skip_special_tokens)
            for choice in choices
        ]

    def body(self, deltas: list[Delta]) -> Members:
        return self._frame.body(deltas, self._choice)

    def _choice(self, delta: Delta) -> Members:
        text, lists = self._take_echo(delta.index)
        found = self._logprobs(delta)
        if lists is not None and found is not None:
            lists.extend(found)
        choice: Members = {"text": text + delta.text, "logprobs": lists or found}
        plan, asked = self._frame.plan, self._generation.choices[delta.index]
        if plan.has_token_ids:
            choice["prompt_token_ids"] = asked.request.prompt_ids.tolist()
        if plan.prompt_top is not None and asked.scores is not None:
            top = plan.prompt_top
            choice["prompt_logprobs"] = prompt_logprobs(self._tokenizer, asked.scores, top)
        return choice

    def _take_echo(self, index: int) -> tuple[str, TextLists | None]:
        """The prompt of a choice the first time, with its logprobs if they are wanted."""
        text = self._echoes.pop(index, None)
        plan, log = self._frame.plan, self._generation.choices[index].scores
        if text is None or log is None or not plan.has_logprobs:
            return text or "", None
        return text, self._spellings[index].take_prompt(log, text, plan.num_top)

    def _logprobs(self, delta: Delta) -> TextLists | None:
        if not self._frame.plan.has_logprobs:
            return None
        return self._spellings[delta.index].take(delta, self._frame.plan.num_top)

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        events = b""
        if delta.index in self._echoes:
            echo = _spelled(*self._take_echo(delta.index))
            events = self._frame.chunks.choice(delta.index, echo)
        is_news = bool(delta.text) or self._frame.has_token_news(delta)
        fields = [self._fields(delta)] if is_news else []
        return events + self._frame.write(delta, fields, b'"text":"","logprobs":null')

    def _fields(self, delta: Delta) -> bytes:
        return _spelled(delta.text, self._logprobs(delta))

    def end(self) -> bytes:
        return self._frame.end()


def _spelled(text: str, logprobs: TextLists | None) -> bytes:
    return b'"text":%b,"logprobs":%b' % (orjson.dumps(text), orjson.dumps(logprobs))
