"""Conversation: what a chat request says, before it is a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Conversation:
    """`messages` in the form that templates read: role, content as text, tool_calls.
    `num_chars` counts tools and calls too.
    """

    messages: Sequence[Mapping[str, object]]
    num_chars: int
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    extra: Mapping[str, object] = field(default_factory=dict)
    tools: Sequence[Mapping[str, object]] = ()
