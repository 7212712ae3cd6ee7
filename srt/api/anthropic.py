"""POST /v1/messages and /v1/messages/count_tokens.

    body -> chat messages -> prompt ids -> generation -> one message, or events named as Anthropic's

The error bodies of these routes are Anthropic's too (`bodies.py`), whoever refuses.
"""

from __future__ import annotations

from array import array
from dataclasses import replace

from starlette.requests import Request
from starlette.types import ASGIApp

from ..errors import BadRequest
from ..tokenizer.conversation import Conversation
from .answering import collect, stream
from .anthropic_answer import FRAMING, MessageAnswer
from .anthropic_messages import chat_messages
from .anthropic_schema import CountRequest, MessagesLater, MessagesRequest
from .anthropic_tools import reasoning_wishes, template_variables, tool_use
from .bodies import JsonResponse
from .chat_messages import read_messages
from .chat_output import ChatOutput, OutputRules, after_prompt, output_rules
from .forced_calls import force_calls
from .generating import JobOptions, make_job, new_rid, read_scope, while_connected
from .later import not_supported, refuse
from .reading import decode, read_body
from .sampling import Dialect, Sampling, showing
from .schema import SamplingFields
from .service import Service
from .tool_use import ToolUse

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
        tools = _tools(body)
        rules = output_rules(service.formats, tools, reasoning_wishes(body))
        options = self._options(body, request, rules)
        rid = new_rid(body.rid, request, "msg_")
        ids = await while_connected(request, self._prompt_ids(body, tools))
        rules = after_prompt(rules, service.tokenizer, ids)
        forced = force_calls(options.sampling, rules, tools, service)
        sampling = await while_connected(request, forced)
        job = make_job(service, ids, replace(options, sampling=sampling))
        generation = service.frontend.submit([job], rid=rid, is_streaming=options.is_streaming)
        output = ChatOutput(rules, service.tokenizer)
        has_report = service.config.net.cache_report
        answer = MessageAnswer(generation, model, output, has_cache_report=has_report)
        if options.is_streaming:
            return await stream(request, generation, answer, FRAMING)
        return JsonResponse(answer.body(await collect(request, generation)))

    async def count(self, request: Request) -> ASGIApp:
        service = self._service
        data = await read_body(request, service.config.net.max_body_bytes)
        body = decode(data, CountRequest)
        refuse(data, MessagesLater)
        service.check_model(body.model)
        read_scope(body, request, body.extra_key)  # refused here too
        conversation = _conversation(body, _tools(body))
        ids = await while_connected(request, service.prompts.encode_chat(conversation))
        return JsonResponse({"input_tokens": len(ids)})

    def _options(self, body: MessagesRequest, request: Request, rules: OutputRules) -> JobOptions:
        return JobOptions(
            sampling=showing(self._sampling(body), rules.shown_ids),
            scope=read_scope(body, request, body.extra_key),
            top_logprobs=None,
            is_streaming=bool(body.stream),
        )

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

    async def _prompt_ids(self, body: MessagesRequest, tools: ToolUse) -> array[int]:
        return await self._service.prompts.chat(_conversation(body, tools), "messages")


def _tools(body: CountRequest) -> ToolUse:
    """Raises BadRequest, NotSupported."""
    if body.output_config is not None and body.output_config.format is not None:
        raise not_supported("output_config.format")
    return tool_use(body)


def _conversation(body: CountRequest, tools: ToolUse) -> Conversation:
    messages = chat_messages(body)
    return read_messages(
        messages,
        continue_final=messages[-1].role == "assistant",
        add_prompt=None,
        extra=template_variables(body),
        tools=tools.for_template(),
    )
