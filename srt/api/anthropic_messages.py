"""Anthropic's messages -> the messages of a chat.

    system                  -> a system message
    user: text, tool_result -> user messages and tool messages, in their order
    assistant: blocks       -> one message with content, reasoning_content and tool_calls

Neighbours of one role become one message, as Anthropic defines it and many templates need it. Its
texts are parts, which the model's format joins; so are those of a tool's result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import BadRequest
from .anthropic_schema import (
    Block,
    CountRequest,
    DocumentBlock,
    ImageBlock,
    MessageParam,
    RedactedBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from .schema import ChatMessage, ContentPart, FunctionCall, ToolCall

ROLES = ("user", "assistant", "system")
MAX_BLOCKS = 1 << 15  # reading them takes 0.1 s, in which nobody else is answered
# A line that a client puts before its system text, other in each request: not meant for the model,
# and it would part all prompts in the prefix cache.
BILLING = "x-anthropic-billing-header:"


@dataclass(slots=True, eq=False)
class _Turn:
    """One chat message in the making."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    call_id: str | None = None
    name: str | None = None

    def message(self) -> ChatMessage:
        return ChatMessage(
            role=self.role,
            content=_parts(self.texts),
            reasoning_content="\n".join(self.thoughts) if self.thoughts else None,
            tool_calls=self.calls or None,
            tool_call_id=self.call_id,
            name=self.name,
        )


def chat_messages(body: CountRequest) -> list[ChatMessage]:
    """Raises BadRequest that names the message or block."""
    if not body.messages:
        raise BadRequest("messages must not be empty", param="messages")
    _check_size(body.messages)
    system = _system(body.system)
    turns = [_Turn("system", system)] if system else []
    names = _names_of_calls(body.messages)
    for i, message in enumerate(body.messages):
        for turn in _turns(message, f"messages[{i}]", names):
            _add(turns, turn)
    if turns[-1].calls:
        raise BadRequest("the last tool_use block has no tool_result", param="messages")
    return [turn.message() for turn in turns]


def _check_size(messages: Sequence[MessageParam]) -> None:
    total = sum(1 if isinstance(m.content, str) else len(m.content) for m in messages)
    if total > MAX_BLOCKS:
        raise BadRequest(
            f"messages has {total} blocks of content, at most {MAX_BLOCKS}", param="messages"
        )


def _system(system: str | list[TextBlock] | None) -> list[str]:
    if isinstance(system, str):
        return [system] if system else []
    return [block.text for block in system or () if not block.text.startswith(BILLING)]


def _parts(texts: Sequence[str]) -> str | list[ContentPart]:
    if len(texts) > 1:
        return [ContentPart(type="text", text=text) for text in texts]
    return "".join(texts)


def _names_of_calls(messages: Iterable[MessageParam]) -> dict[str, str]:
    blocks = (block for m in messages if isinstance(m.content, list) for block in m.content)
    return {block.id: block.name for block in blocks if isinstance(block, ToolUseBlock)}


def _turns(message: MessageParam, where: str, names: dict[str, str]) -> Iterator[_Turn]:
    role, content = message.role, message.content
    if role not in ROLES:
        raise BadRequest(
            f"{where}.role must be one of {', '.join(ROLES)}, got {role!r}", param=f"{where}.role"
        )
    if not content and role != "assistant":
        raise BadRequest(f"{where}.content must not be empty", param=f"{where}.content")
    if isinstance(content, str):
        yield _Turn(role, [content])
    elif role == "assistant":
        yield _assistant(content, where)
    else:
        for i, block in enumerate(content):
            yield _user(role, block, f"{where}.content[{i}]", names)


def _user(role: str, block: Block, where: str, names: dict[str, str]) -> _Turn:
    if isinstance(block, ToolResultBlock) and role == "user":
        name = names.get(block.tool_use_id)
        return _Turn("tool", _result(block, where), call_id=block.tool_use_id, name=name)
    return _Turn(role, [_text(block, role, where)])


def _assistant(content: Sequence[Block], where: str) -> _Turn:
    turn = _Turn("assistant")
    for i, block in enumerate(content):
        if isinstance(block, ThinkingBlock):
            turn.thoughts.append(block.thinking)
        elif isinstance(block, ToolUseBlock):
            call = FunctionCall(name=block.name, arguments=block.input)
            turn.calls.append(ToolCall(id=block.id, function=call))
        elif not isinstance(block, RedactedBlock):
            turn.texts.append(_text(block, "assistant", f"{where}.content[{i}]"))
    return turn


def _result(block: ToolResultBlock, where: str) -> list[str]:
    content = block.content
    if isinstance(content, str):
        texts = [content]
    else:
        texts = [_text(b, "user", f"{where}.content[{i}]") for i, b in enumerate(content or ())]
    if block.is_error:
        texts = [f"Error: {''.join(texts[:1])}", *texts[1:]]
    return texts


def _text(block: Block, role: str, where: str) -> str:
    if isinstance(block, TextBlock):
        return block.text
    kind = type(block).__struct_config__.tag
    reason = f"does not belong into a message of role {role!r}"
    if isinstance(block, ImageBlock | DocumentBlock):
        reason = "is not possible, for the model takes text only"
    raise BadRequest(f"{where}: a block of type {kind!r} {reason}", param=f"{where}.type")


def _add(turns: list[_Turn], turn: _Turn) -> None:
    """Appends, or joins to a last turn of the same role; results of tools stay apart."""
    last = turns[-1] if turns else None
    if last is None or last.role != turn.role or turn.role == "tool":
        turns.append(turn)
        return
    last.texts.extend(turn.texts)
    last.thoughts.extend(turn.thoughts)
    last.calls.extend(turn.calls)
