"""Bodies of answers as Structs: for the OpenAPI document and the tests, not for making them.

Answers are spelled by hand because that is several times cheaper per token; a test reads real
answers of every route against these and fails on a member that is missing here.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..snapshot import RequestView, SessionView
from .tree_view import TreeView


class ErrorFields(msgspec.Struct, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | int


class ErrorBody(msgspec.Struct, kw_only=True):
    """Errors of every route but Anthropic's: nested as OpenAI, and flat for other clients."""

    error: ErrorFields | Literal["Unauthorized"]
    object: Literal["error"]
    message: str
    type: str
    param: str | None
    code: str | int


class PromptDetails(msgspec.Struct, kw_only=True):
    """`replayed_tokens` are cached tokens whose windows were computed again. `approx_generation`:
    how many approximate replays lie behind the answer; 0 is what a cold run gives."""

    cached_tokens: int
    replayed_tokens: int
    approx_generation: int


class CompletionDetails(msgspec.Struct, kw_only=True):
    reasoning_tokens: int


class UsageBody(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | None
    completion_tokens_details: CompletionDetails
    reasoning_tokens: int


class CachedTiers(msgspec.Struct, kw_only=True):
    """Tokens by where their KV was found."""

    device: int
    host: int
    storage: int


class Extension(msgspec.Struct, kw_only=True):
    cached_tokens_details: CachedTiers


class ToolCallBody(msgspec.Struct, kw_only=True):
    id: str | None = None
    index: int | None = None
    type: str | None = None
    function: dict[str, Any]


class MessageBody(msgspec.Struct, kw_only=True):
    role: str
    content: str | None
    reasoning_content: str | None
    reasoning: str | None
    tool_calls: list[ToolCallBody] | None


class DeltaBody(msgspec.Struct, kw_only=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallBody] | None = None


class TokenBody(msgspec.Struct, kw_only=True):
    token: str
    bytes: list[int]
    logprob: float


class ContentLogprob(TokenBody, kw_only=True):
    top_logprobs: list[TokenBody]


class ChatLogprobs(msgspec.Struct, kw_only=True):
    content: list[ContentLogprob]


class ChoiceBase(msgspec.Struct, kw_only=True):
    index: int
    finish_reason: str | None
    matched_stop: int | str | None = None
    token_ids: list[int] | None = None


class ChatChoice(ChoiceBase, kw_only=True):
    message: MessageBody
    logprobs: ChatLogprobs | None


class ChunkChoice(ChoiceBase, kw_only=True):
    delta: DeltaBody
    logprobs: ChatLogprobs | None


class AnswerBase(msgspec.Struct, kw_only=True):
    id: str
    created: int
    model: str


class PromptEntry(msgspec.Struct, kw_only=True):
    """Of a prompt token or one that was likelier, under its id as text. Rank 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


class ChatCompletion(AnswerBase, kw_only=True):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: UsageBody
    metadata: dict[str, Any]
    prompt_logprobs: list[dict[str, PromptEntry] | None] | None = None
    prompt_token_ids: list[int] | None = None
    sglext: Extension | None = None


class ChatChunk(AnswerBase, kw_only=True):
    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: UsageBody | None = None
    prompt_token_ids: list[int] | None = None
    sglext: Extension | None = None


class TextLogprobs(msgspec.Struct, kw_only=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(ChoiceBase, kw_only=True):
    text: str
    logprobs: TextLogprobs | None
    prompt_logprobs: list[dict[str, PromptEntry] | None] | None = None
    prompt_token_ids: list[int] | None = None


class TextCompletion(AnswerBase, kw_only=True):
    """Also one event of a stream."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
    usage: UsageBody | None = None
    sglext: Extension | None = None


class NativeMeta(msgspec.Struct, kw_only=True):
    """Logprobs are `[logprob, id, text]`; those of a prompt are in the first and the last event."""

    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cached_tokens_details: CachedTiers
    replayed_tokens: int
    approx_generation: int
    weight_version: str
    e2e_latency: float
    first_token_latency: float | None = None
    output_token_logprobs: list[Any] | None = None
    output_top_logprobs: list[Any] | None = None
    output_token_ids_logprobs: list[Any] | None = None
    input_token_logprobs: list[Any] | None = None
    input_top_logprobs: list[Any] | None = None
    input_token_ids_logprobs: list[Any] | None = None


class NativeAnswer(msgspec.Struct, kw_only=True):
    """Also one event of a stream, which repeats all text and ids so far."""

    text: str
    output_ids: list[int]
    meta_info: NativeMeta
    index: int | None = None


class TokensBody(msgspec.Struct, kw_only=True):
    """Lists of rows when several texts were given."""

    tokens: list[int | list[int]]
    count: int | list[int]
    max_model_len: int
    token_strs: list[str | list[str]]


class ParsedCall(msgspec.Struct, kw_only=True):
    """`parameters` is JSON text."""

    tool_index: int
    name: str
    parameters: str


class ParsedCalls(msgspec.Struct, kw_only=True):
    normal_text: str
    calls: list[ParsedCall]


class SeparatedReasoning(msgspec.Struct, kw_only=True):
    reasoning_text: str
    text: str


class DetokenizedBody(msgspec.Struct, kw_only=True):
    text: str | list[str]
    prompt: str | list[str]


class ModelCard(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(msgspec.Struct, kw_only=True):
    object: Literal["list"]
    data: list[ModelCard]


class VersionBody(msgspec.Struct, kw_only=True):
    version: str


class ModelInfoBody(msgspec.Struct, kw_only=True):
    model_path: str
    served_model_name: str
    tokenizer_path: str
    is_generation: bool
    preferred_sampling_params: dict[str, Any] | None
    weight_version: str
    load_format: str
    reasoning_parser: str | None
    tool_call_parser: str | None
    disaggregation_mode: str
    has_image_understanding: bool
    has_audio_understanding: bool
    model_type: str
    architectures: list[str]


class ServerInfoBody(msgspec.Struct, kw_only=True):
    """All settled options of the server lie beside these members, secrets masked."""

    scheduler_info: dict[str, int]
    internal_states: list[dict[str, Any]]
    version: str
    startup_time: float
    launch_command: str
    kv_events: None


class LoadsBody(msgspec.Struct, kw_only=True):
    timestamp: float
    version: str
    loads: list[dict[str, float]]


class DashboardBody(msgspec.Struct, kw_only=True):
    time: float
    version: str
    model: str
    page_size: int
    window: int
    max_running_requests: int
    metrics: dict[str, float]
    requests: list[RequestView]
    sessions: list[SessionView]
    tree: TreeView


class ReleasedBody(msgspec.Struct, kw_only=True):
    success: bool


class AbortedBody(msgspec.Struct, kw_only=True):
    success: bool
    num_aborted: int


class ProfileAnswer(msgspec.Struct, kw_only=True):
    success: bool
    message: str
