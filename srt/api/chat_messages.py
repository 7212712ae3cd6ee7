"""Messages of a chat request -> what templates read; and what a chat may not ask for yet.

Owns the roles, which content parts are text and the rules of `continue_final_message`. Parts stay
apart, for how they are joined is the model's; calls and reasoning in the history are passed on too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from ..errors import BadRequest
from ..tokenizer.conversation import Conversation
from .schema import ChatMessage, ChatRequest, ContentPart

MAX_MESSAGES = 1 << 15  # reading them takes 0.1 s, in which nobody else is answered
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def read_messages(
    messages: Sequence[ChatMessage] | None,
    *,
    continue_final: bool | None,
    add_prompt: bool | None,
    extra: Mapping[str, object] | None,
    tools: Sequence[Mapping[str, object]] = (),
) -> Conversation:
    """Raises BadRequest that names the message."""
    if not messages:
        raise BadRequest("messages must not be empty", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise BadRequest(
            f"messages has {len(messages)} entries, at most {MAX_MESSAGES}", param="messages"
        )
    if continue_final and add_prompt:
        raise BadRequest(
            "continue_final_message and add_generation_prompt exclude each other",
            param="continue_final_message",
        )
    if continue_final and messages[-1].role != "assistant":
        raise BadRequest(
            "continue_final_message needs a last message of role assistant",
            param="continue_final_message",
        )
    read = [_message(m, f"messages[{i}]") for i, m in enumerate(messages)]
    return Conversation(
        read,
        num_chars=sum(map(_num_chars, read)) + _json_chars(tools, "tools"),
        add_generation_prompt=(add_prompt is not False) and not continue_final,
        continue_final_message=bool(continue_final),
        extra=extra or {},
        tools=tools,
    )


def _message(message: ChatMessage, where: str) -> dict[str, object]:
    role = message.role
    if role not in ROLES:
        raise BadRequest(
            f"{where}.role must be one of {', '.join(ROLES)}, got {role!r}",
            param=f"{where}.role",
        )
    if message.content is None and role != "assistant":
        raise BadRequest(f"{where}.content must not be null", param=f"{where}.content")
    read: dict[str, object] = {"role": role, "content": _content(message.content, where)}
    optional = {
        "name": message.name,
        "reasoning_content": _either(message.reasoning_content, message.reasoning),
        "tool_call_id": message.tool_call_id,
    }
    read.update({key: value for key, value in optional.items() if value is not None})
    if message.tool_calls:
        read["tool_calls"] = [msgspec.to_builtins(call) for call in message.tool_calls]
    return read


def _either(first: str | None, second: str | None) -> str | None:
    return second if first is None else first


def _num_chars(message: Mapping[str, object]) -> int:
    content, thoughts = message["content"], message.get("reasoning_content")
    texts = [part["text"] for part in content] if isinstance(content, list) else [content]
    chars = sum(len(text) for text in (*texts, thoughts) if isinstance(text, str))
    return chars + _json_chars(message.get("tool_calls"), "messages")


def _json_chars(value: object, param: str) -> int:
    """Raises BadRequest for what is too deep to be written for the model."""
    try:
        return len(json.dumps(value)) if value else 0
    except RecursionError:
        raise BadRequest(f"{param} is nested too deeply", param=param) from None


def _content(content: str | list[ContentPart] | None, where: str) -> str | list[dict[str, str]]:
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for i, part in enumerate(content):
        if part.type not in TEXT_PARTS:
            raise BadRequest(
                f"{where}.content[{i}] has type {part.type!r}, but the model takes text only",
                param=f"{where}.content[{i}].type",
            )
        parts.append({"type": "text", "text": part.text or ""})
    return parts


def check_features(body: ChatRequest) -> None:
    """Raises BadRequest, NotSupported."""
    if body.chat_template is not None:
        raise BadRequest(
            "chat_template in a request is refused: the server was not started to trust it",
            param="chat_template",
        )
