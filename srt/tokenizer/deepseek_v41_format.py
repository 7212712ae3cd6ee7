"""DeepSeek-V4.1's prompt format behind the interface of chat templates.

Owns the meaning of a request's variables: `thinking` or `enable_thinking` (on unless told), and
`reasoning_effort` (a word, 1 to 100, or a share below 1; `none` turns thinking off).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import BadRequest
from .chat import content_text, tool_calls
from .conversation import Conversation
from .deepseek_v41_chat import DEFAULT_EFFORT, EFFORTS, PromptOptions, render
from .deepseek_v41_texts import TOOLS_HEAD
from .encode import Tokenizer

PART_JOINT = "\n\n"


class DeepseekV41Format:
    name = "of DeepSeek-V4.1"
    source = TOOLS_HEAD
    knows_tools = True
    reasons = True

    def encode(self, conversation: Conversation, tokenizer: Tokenizer) -> list[int]:
        """Raises: BadRequest."""
        messages = [_read(m, index) for index, m in enumerate(conversation.messages)]
        is_thinking, effort = _thinking(conversation.extra)
        continues = conversation.continue_final_message
        if continues and (not messages or messages[-1]["role"] != "assistant"):
            raise BadRequest(
                "continue_final_message needs a last message of the assistant",
                param="continue_final_message",
            )
        options = PromptOptions(
            is_thinking=is_thinking,
            effort=effort,
            tools=conversation.tools,
            opens=conversation.add_generation_prompt,
            continues=continues,
        )
        ids: list[int] = []
        for piece in render(messages, options):
            if piece.is_marker:
                ids.append(tokenizer.id_of(piece.text))
            else:
                ids.extend(tokenizer.encode_plain(piece.text))
        return ids


def _read(message: Mapping[str, object], index: int) -> dict[str, object]:
    where = f"messages[{index}]"
    read = {
        **message,
        "content": content_text(message.get("content"), f"{where}.content", PART_JOINT),
    }
    if message.get("tool_calls"):
        read["tool_calls"] = tool_calls(message["tool_calls"], f"{where}.tool_calls")
    return read


def _thinking(variables: Mapping[str, object]) -> tuple[bool, int]:
    effort = variables.get("reasoning_effort")
    default = effort != "none"
    is_on = variables.get("thinking", variables.get("enable_thinking", default))
    return bool(is_on), _effort(effort)


def _effort(value: object) -> int:
    """Raises: BadRequest naming value and limits."""
    if value is None or value == "none":
        return DEFAULT_EFFORT
    if isinstance(value, str) and value in EFFORTS:
        return EFFORTS[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        scaled = round(value * 100) if isinstance(value, float) and value < 1 else round(value)
        if 1 <= scaled <= 100:
            return scaled
    raise BadRequest(
        f"reasoning_effort must be one of {', '.join(EFFORTS)} or 1 to 100, got {value!r}",
        param="reasoning_effort",
    )
