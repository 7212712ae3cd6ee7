"""Texts and conversations -> checked prompt ids.

Long texts are rendered and encoded in a thread, so that the event loop goes on serving streams.
Whatever comes out has passed `Limits`.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..errors import BadRequest
from .conversation import Conversation
from .encode import Tokenizer
from .limits import Limits

# About 1 ms of work; a thread costs 0.1 ms and the waiting for other threads.
INLINE_CHARS = 4096


class PromptFormat(Protocol):
    """How a model's conversations become ids: a template, or code. `source` is what tells the
    dialect of its answers; with `knows_tools` False tools are introduced in words."""

    @property
    def source(self) -> str: ...

    @property
    def knows_tools(self) -> bool: ...

    @property
    def reasons(self) -> bool:
        """Answers hold reasoning unless the request says otherwise."""

    def encode(self, conversation: Conversation, tokenizer: Tokenizer) -> list[int]:
        """Raises: BadRequest."""


@dataclass(frozen=True, slots=True)
class Prompts:
    tokenizer: Tokenizer
    template: PromptFormat | None
    limits: Limits
    template_kwargs: Mapping[str, object] = field(default_factory=dict)  # before a request's own

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
        """Ids of the rendered conversation; the format writes its special tokens itself."""
        if self.template is None:
            raise BadRequest(
                "the model has no chat template; start the server with --chat-template",
                param="messages",
            )
        if self.template_kwargs:
            extra = {**self.template_kwargs, **conversation.extra}
            conversation = replace(conversation, extra=extra)
        if conversation.num_chars <= INLINE_CHARS:
            return self.template.encode(conversation, self.tokenizer)
        return await asyncio.to_thread(self.template.encode, conversation, self.tokenizer)
