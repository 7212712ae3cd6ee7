"""Texts and conversations -> checked prompt ids.

Long texts are rendered and encoded in a thread, so that the event loop goes on serving streams.
Whatever comes out has passed `Limits`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import BadRequest
from .chat import ChatTemplate
from .encode import Tokenizer
from .limits import Limits

# About 1 ms of work; a thread costs 0.1 ms and the waiting for other threads.
INLINE_CHARS = 4096


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


@dataclass(frozen=True, slots=True)
class Prompts:
    tokenizer: Tokenizer
    template: ChatTemplate | None
    limits: Limits

    async def text(self, text: str, param: str, *, add_special: bool = True) -> array[int]:
        """Raises BadRequest for an empty prompt, TooLong."""
        self.limits.check_text_len(len(text), self.tokenizer.longest_piece, param)
        return self.limits.check_ids(await self.encode(text, add_special=add_special), param)

    async def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Ids without any check."""
        if len(text) <= INLINE_CHARS:
            return self.tokenizer.encode(text, add_special=add_special)
        return await asyncio.to_thread(self.tokenizer.encode, text, add_special=add_special)

    async def chat(self, conversation: Conversation, param: str) -> array[int]:
        """Raises BadRequest for messages that the template refuses, TooLong."""
        self.limits.check_text_len(conversation.num_chars, self.tokenizer.longest_piece, param)
        return self.limits.check_ids(await self.encode_chat(conversation), param)

    async def encode_chat(self, conversation: Conversation) -> list[int]:
        """Ids of the rendered conversation; the template writes its special tokens itself."""
        if self.template is None:
            raise BadRequest(
                "the model has no chat template; start the server with --chat-template",
                param="messages",
            )
        if conversation.num_chars <= INLINE_CHARS:
            return self._render(self.template, conversation)
        return await asyncio.to_thread(self._render, self.template, conversation)

    def _render(self, template: ChatTemplate, conversation: Conversation) -> list[int]:
        text = template.render(
            conversation.messages,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            tools=conversation.tools,
            extra=conversation.extra,
        )
        return self.tokenizer.encode(text, add_special=False)
