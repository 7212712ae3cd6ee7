"""POST /v1/chat/completions.

    body -> messages -> prompt ids -> generation -> one `chat.completion`, or chunks:
    role chunk with empty content, contents, one finish chunk per choice; if asked, chunks without
    choices for the tiers of cached tokens and for usage

Everything that can be refused is refused before the first byte of a response.
"""

from __future__ import annotations

from array import array
from dataclasses import replace

from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from .chat_answer import ChatAnswer
from .chat_messages import check_features, read_messages
from .chat_output import OutputRules, after_prompt, output_rules
from .chat_reasoning import reasoning_wishes, template_variables
from .forced_calls import force_calls
from .generating import JobOptions, make_job, new_rid, read_scope, while_connected
from .grammar import constrained, openai_grammar
from .later import not_supported
from .openai_common import AnswerPlan, Frame, read_openai, respond
from .sampling import CHAT, CHAT_NEW, Sampling, from_openai, showing, top_logprobs
from .schema import ChatRequest
from .scoring import check_scores
from .service import Service
from .tool_use import ToolUse, read_tools


class ChatRoute:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> ASGIApp:
        service = self._service
        body = await read_openai(service, request, ChatRequest)
        check_features(body)
        plan = AnswerPlan(body, num_top=self._num_top(body))
        model = service.check_model(body.model)
        tools = read_tools(body.tools, body.tool_choice, is_parallel=body.parallel_tool_calls)
        rules = output_rules(service.formats, tools, reasoning_wishes(body))
        options = self._options(body, request, plan, rules)
        rid = new_rid(body.rid, request)
        ids = await while_connected(request, self._prompt_ids(body, tools))
        rules = after_prompt(rules, service.tokenizer, ids)
        options = await while_connected(request, self._checked(options, rules, tools))
        jobs = [make_job(service, ids, options)]
        check_scores(jobs)
        generation = service.frontend.submit(jobs, rid=rid, is_streaming=plan.is_streaming)
        kind = "chat.completion.chunk" if plan.is_streaming else "chat.completion"
        frame = Frame(service, generation, model, plan, kind)
        answer = ChatAnswer(service.tokenizer, generation, frame, rules)
        return await respond(request, generation, answer, is_streaming=plan.is_streaming)

    def _options(
        self, body: ChatRequest, request: Request, plan: AnswerPlan, rules: OutputRules
    ) -> JobOptions:
        return JobOptions(
            sampling=showing(self._sampling(body), rules.shown_ids),
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=plan.engine_top,
            is_streaming=plan.is_streaming,
            logprob_start=None if plan.prompt_top is None else 0,
        )

    def _num_top(self, body: ChatRequest) -> int | None:
        if body.top_logprobs and not body.logprobs:
            raise BadRequest("top_logprobs needs logprobs: true", param="top_logprobs")
        top = top_logprobs(body.top_logprobs, "top_logprobs")
        return (top or 0) if body.logprobs else None

    def _sampling(self, body: ChatRequest) -> Sampling:
        dialect = CHAT if body.max_completion_tokens is None else CHAT_NEW
        sampling = self._service.sampling.read(from_openai(body), dialect)
        return constrained(sampling, openai_grammar(body))

    async def _checked(self, options: JobOptions, rules: OutputRules, tools: ToolUse) -> JobOptions:
        """With the grammar that calls or the answer must match; reasoning that the prompt has
        opened comes before it."""
        sampling, desk = options.sampling, self._service.grammars
        if tools.is_forced:
            sampling = await force_calls(sampling, rules, tools, self._service)
        elif sampling.params.grammar is not None:
            if rules.dialect is not None:  # a grammar of the answer alone would forbid every call
                raise not_supported("tools", "beside a grammar; tool_choice 'none' is")
            if rules.reasoning is not None and rules.is_inside:
                sampling = desk.after_reasoning(sampling, rules.reasoning.end)
            await desk.check(sampling)
        return replace(options, sampling=sampling)

    async def _prompt_ids(self, body: ChatRequest, tools: ToolUse) -> array[int]:
        if body.input_ids is not None:
            return self._service.limits.check_ids(body.input_ids, "input_ids")
        conversation = read_messages(
            body.messages,
            continue_final=body.continue_final_message,
            add_prompt=body.add_generation_prompt,
            extra=template_variables(body),
            tools=tools.for_template(),
        )
        return await self._service.prompts.chat(conversation, "messages")
