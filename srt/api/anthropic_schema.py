"""Bodies of /v1/messages as msgspec Structs: what a client sends, and what is answered.

Unknown members are ignored, also in blocks, because SDKs add new ones all the time; an unknown type
of block is refused. `cache_control` is taken and has no effect: every prefix is cached.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .later import CommonLater
from .schema import CacheFields, Ids


class Marked(msgspec.Struct, kw_only=True):
    cache_control: dict[str, Any] | None = None


class TextBlock(Marked, kw_only=True, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str | None = None


class RedactedBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="redacted_thinking"):
    """Holds nothing that this server could read; left out of the prompt."""

    data: str | None = None


class ToolUseBlock(Marked, kw_only=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any] = msgspec.field(default_factory=dict)


class ImageBlock(Marked, kw_only=True, tag_field="type", tag="image"):
    """Refused: the model takes text only."""

    source: Any = None


class DocumentBlock(Marked, kw_only=True, tag_field="type", tag="document"):
    """Refused: the model takes text only."""

    source: Any = None


class ToolResultBlock(Marked, kw_only=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock] | None = None
    is_error: bool | None = None


Block = (
    TextBlock
    | ThinkingBlock
    | RedactedBlock
    | ToolUseBlock
    | ToolResultBlock
    | ImageBlock
    | DocumentBlock
)


class MessageParam(msgspec.Struct, kw_only=True):
    role: str
    content: str | list[Block]


class MessagesTool(Marked, kw_only=True):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class MessagesToolChoice(msgspec.Struct, kw_only=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingParam(msgspec.Struct, kw_only=True):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class OutputConfig(msgspec.Struct, kw_only=True):
    effort: str | None = None
    format: Any = None


class MetadataParam(msgspec.Struct, kw_only=True):
    user_id: str | None = None


class CountRequest(CacheFields, kw_only=True):
    """What makes the prompt; fields of the cache have no effect on the count."""

    model: str | None = None
    messages: list[MessageParam] | None = None
    system: str | list[TextBlock] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: ThinkingParam | None = None
    output_config: OutputConfig | None = None
    context_management: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """From `min_tokens` on: fields that Anthropic does not have."""

    max_tokens: int | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: MetadataParam | None = None
    cache_control: dict[str, Any] | None = None
    min_tokens: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    seed: int | None = None


class MessagesLater(CommonLater, kw_only=True):
    container: Any = None
    mcp_servers: Any = None
    output_format: Any = None


class AnthropicErrorFields(msgspec.Struct, kw_only=True):
    type: str
    message: str


class AnthropicError(msgspec.Struct, kw_only=True):
    type: Literal["error"]
    error: AnthropicErrorFields


class MessageUsage(msgspec.Struct, kw_only=True):
    """`input_tokens` are those that were not cached."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageAnswer(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(msgspec.Struct, kw_only=True):
    """One event of a stream: which members it has is said by its type."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
    message: MessageAnswer | None = None
    index: int | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: MessageUsage | None = None
    error: AnthropicErrorFields | None = None


class CountAnswer(msgspec.Struct, kw_only=True):
    input_tokens: int
