"""Request bodies as msgspec Structs: decoding and type validation in one pass.

Every field may be null, which means its default. Unknown keys are ignored at the top level, and
refused inside `sampling_params`, where they are typing errors. Fields of features that this build
does not have are listed in `later.py`, so that they are refused and never silently dropped.
Ranges are checked in `sampling.py`; here are only names and types.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

Ids = list[int]


class SamplingFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`sampling_params` of /generate; the OpenAI routes are converted to it.

    From `structural_tag` on: features that are not built yet, refused when set.
    """

    max_new_tokens: int | None | UnsetType = UNSET  # null: to the end of the context
    min_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None  # no effect: pieces are joined as bytes
    no_stop_trim: bool | None = None
    logit_bias: dict[str, float] | None = None
    sampling_seed: int | None = None
    stream_interval: int | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: Any = None
    stop_regex: Any = None
    custom_params: Any = None
    beam_width: int | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class CacheFields(msgspec.Struct, kw_only=True):
    """Cache scope, replay and session, on every route that generates."""

    rid: str | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    session_id: str | None = None
    priority: int | None = None  # higher is more important; needs --enable-priority-scheduling
    deadline_s: float | None = None  # seconds from arrival, after which the answer is 503
    swa_replay: str | None = None
    swa_replay_slope: int | None = None


class JsonSchemaFormat(msgspec.Struct, kw_only=True):
    """`strict` has no effect: a schema is always kept to."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    type: str
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's spelling of the grammars."""

    json: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None  # no effect: there never is any
    disable_additional_properties: bool | None = None
    disable_fallback: bool | None = None  # no effect: there is one compiler


class OpenAIFields(CacheFields, kw_only=True):
    """What chat and text completions share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    include_stop_str_in_output: bool | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    return_token_ids: bool | None = None
    return_cached_tokens_details: bool | None = None
    response_format: ResponseFormat | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    prompt_logprobs: int | bool | None = None


class ContentPart(msgspec.Struct, kw_only=True):
    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct, kw_only=True):
    name: str
    arguments: str | dict[str, Any] = "{}"  # JSON text, or what it spells


class ToolCall(msgspec.Struct, kw_only=True):
    id: str | None = None
    type: str = "function"
    function: FunctionCall


class ChatMessage(msgspec.Struct, kw_only=True):
    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same by its other name
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class ToolFunction(msgspec.Struct, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    type: str | None = None
    function: ToolFunction


class NamedFunction(msgspec.Struct, kw_only=True):
    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    function: NamedFunction


class ReasoningOptions(msgspec.Struct, kw_only=True):
    effort: str | float | None = None
    enabled: bool | None = None


class ChatRequest(OpenAIFields, kw_only=True):
    messages: list[ChatMessage] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    input_ids: Ids | None = None
    tools: list[Tool] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    reasoning_effort: str | float | None = None
    reasoning: ReasoningOptions | None = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    include_reasoning: bool | None = None


class CompletionRequest(OpenAIFields, kw_only=True):
    prompt: str | list[str | int | Ids] | None = None
    logprobs: int | None = None
    best_of: int | None = None
    echo: bool | None = None


class GenerateBody(CacheFields, kw_only=True):
    """/generate. Batch fields are lists as long as the batch, or one value for all."""

    rid: str | list[str] | None = None  # type: ignore[assignment]
    extra_key: str | list[str] | None = None  # type: ignore[assignment]
    text: str | list[str] | None = None
    input_ids: list[int | Ids] | None = None
    input_embeds: Any = None
    sampling_params: SamplingFields | list[SamplingFields] | None = None
    stream: bool | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    token_ids_logprob: list[int | Ids] | None = None
    return_text_in_logprobs: bool | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True):
    prompt: str | list[str] | None = None
    text: str | list[str] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[Tool] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    tokens: list[int | Ids] | None = None
    skip_special_tokens: bool | None = None


class ParseCallsRequest(msgspec.Struct, kw_only=True):
    text: str | None = None
    tools: list[Tool] | None = None
    tool_call_parser: str | None = None


class SeparateReasoningRequest(msgspec.Struct, kw_only=True):
    text: str | None = None
    reasoning_parser: str | None = None


class ProfileBody(msgspec.Struct, kw_only=True):
    output_dir: str | None = None
    num_steps: int | None = None
    activities: list[str] | None = None
    with_stack: bool | None = None
    record_shapes: bool | None = None
    profile_id: str | None = None
    start_step: int | None = None
    profile_by_stage: bool | None = None
    merge_profiles: bool | None = None
    profile_prefix: str | None = None


class ReleaseBody(msgspec.Struct, kw_only=True):
    session_id: str | list[str] | None = None


class AbortBody(msgspec.Struct, kw_only=True):
    rid: str | None = None
    abort_all: bool | None = None
    abort_message: str | None = None
    prefix: bool | None = None  # match ids that start with `rid`
