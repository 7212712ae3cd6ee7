"""What a branch has said so far: a text, or the messages of a chat, and the prompt that it makes.

A program is one or the other, decided by its first word. `Transcript` is the growing form, owned by
one branch; `Prompt` values are cut from it and never change. Message dictionaries are shared
between prompts and forks, so none is ever written to once it is in `messages`.

Rendering a chat is the server's alone: this side never writes a marker of a template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..client.errors import ProgramError
from .tools import ToolCall

Json = dict[str, Any]

# How a chat prompt ends: before an answer, inside of one, or after a message.
End = Literal["answer", "inside", "message"]


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt that is text.

    >>> tr.TextPrompt("1, 2,").as_json()
    {'text': '1, 2,'}
    """

    text: str

    def as_json(self) -> Json:
        return {"text": self.text}


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt that is a chat. `variables`: of the chat template, as `thinking`.

    >>> tr.ChatPrompt(({"role": "user", "content": "Hi"},), "answer").body()
    {'messages': [{'role': 'user', 'content': 'Hi'}]}
    """

    messages: tuple[Mapping[str, Any], ...]
    end: End
    tools: tuple[Json, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> Json:
        """Fields that chat requests and /tokenize share."""
        fields: Json = {"messages": list(self.messages)}
        if self.end == "inside":
            fields |= {"continue_final_message": True, "add_generation_prompt": False}
        elif self.end == "message":
            fields["add_generation_prompt"] = False
        if self.tools:
            fields["tools"] = list(self.tools)
        if self.variables:
            fields["chat_template_kwargs"] = dict(self.variables)
        return fields

    def as_json(self) -> Json:
        return {**self.body(), "end": self.end}


Prompt = TextPrompt | ChatPrompt


def read_prompt(found: Json) -> Prompt:
    """The inverse of `as_json`."""
    if "text" in found:
        return TextPrompt(found["text"])
    return ChatPrompt(
        tuple(found["messages"]),
        found["end"],
        tuple(found.get("tools", ())),
        found.get("chat_template_kwargs", {}),
    )


class Transcript:
    """`shown` is all that was appended, to be read by people; of a chat each turn begins with its
    role."""

    def __init__(self) -> None:
        self.shown = ""
        self.messages: tuple[Mapping[str, Any], ...] = ()
        self.variables: Mapping[str, Any] = {}
        self._text = ""
        self._role: str | None = None
        self._content = ""
        self._reasoning = ""
        self._calls: tuple[ToolCall, ...] = ()
        self._scopes: dict[str, int] = {}
        self._is_chat: bool | None = None

    def copy(self) -> Transcript:
        other = Transcript()
        other.shown, other.messages, other._text = self.shown, self.messages, self._text
        other.variables = self.variables
        other._role, other._content, other._reasoning = self._role, self._content, self._reasoning
        other._calls = self._calls
        other._scopes, other._is_chat = dict(self._scopes), self._is_chat
        return other

    @property
    def is_chat(self) -> bool:
        return bool(self._is_chat)

    @property
    def is_empty(self) -> bool:
        return not self.shown

    def append(self, text: str) -> None:
        """Raises ProgramError for text of a chat outside of a role."""
        if not text:
            return
        self._decide(is_chat=self._role is not None, what=f"the text {text[:40]!r}")
        if self._role is None:
            self._text += text
        else:
            self._content += text
        self.shown += text

    def take(self, text: str, reasoning: str, calls: Sequence[ToolCall]) -> None:
        """A generation. Reasoning and calls of a chat are members of its message, not content."""
        self.append(text)
        if self._role is not None:
            self._reasoning += reasoning
            self._calls = (*self._calls, *calls)

    def begin(self, role: str) -> str:
        """What was shown for it. Raises ProgramError inside of another role."""
        if self._role is not None:
            raise ProgramError(f"role {role} begins inside of role {self._role}; end that first")
        self._decide(is_chat=True, what=f"role {role}")
        self._role, self._content, self._reasoning, self._calls = role, "", "", ()
        return self._show(f"{role}: ")

    def end(self, role: str) -> str:
        if self._role != role:
            raise ProgramError(f"role {role} ends, but {self._role or 'none'} is open")
        message = self._open()
        self._role = None
        return self.add(message)

    def add(self, message: Mapping[str, Any]) -> str:
        """A whole message, whose content has been shown already."""
        self.messages = (*self.messages, message)
        return self._show("\n")

    def show_message(self, message: Mapping[str, Any]) -> str:
        """Shows a message that was not written piece by piece, and adds it. Raises ProgramError
        inside of a role."""
        if self._role is not None:
            raise ProgramError(f"a whole message cannot stand inside of role {self._role}")
        self._decide(is_chat=True, what=f"a message of {message['role']}")
        shown = self._show(f"{message['role']}: {message.get('content') or ''}")
        return shown + self.add(message)

    def _show(self, text: str) -> str:
        self.shown += text
        return text

    def _decide(self, *, is_chat: bool, what: str) -> None:
        if self._is_chat is None:
            self._is_chat = is_chat
        if self._is_chat and not is_chat:
            raise ProgramError(f"{what} stands outside of a role; in a chat all text has one")
        if is_chat and not self._is_chat:
            raise ProgramError(f"{what} comes after text that has no role")

    def begin_scope(self, name: str) -> None:
        self._scopes[name] = len(self.shown)

    def end_scope(self, name: str) -> str:
        """The text since its begin. Raises ProgramError for one that has not begun."""
        if name not in self._scopes:
            raise ProgramError(f"var_scope {name!r} ends, but has not begun")
        return self.shown[self._scopes.pop(name) :]

    def prompt(self, tools: tuple[Json, ...] = ()) -> Prompt:
        """For a generation here. Raises ProgramError where none is possible."""
        if not self.is_chat:
            if not self._text:
                raise ProgramError("there is no text yet to be continued")
            return TextPrompt(self._text)
        if self._role != "assistant":
            where = f"inside of role {self._role}" if self._role else "outside of a role"
            raise ProgramError(f"a generation of a chat belongs in role assistant, not {where}")
        if not self._content and not self._reasoning:
            return ChatPrompt(self.messages, "answer", tools, self.variables)
        return ChatPrompt((*self.messages, self._open()), "inside", tools, self.variables)

    def answering(self, text: str) -> ChatPrompt:
        """The chat with `text` as what the open answer goes on with."""
        message = {**self._open(), "content": self._content + text}
        return ChatPrompt((*self.messages, message), "inside", (), self.variables)

    def agent_prompt(self, tools: tuple[Json, ...]) -> ChatPrompt:
        """For an agent's turn, which is a message of its own. Raises ProgramError in a role."""
        if self._role is not None:
            raise ProgramError(f"an agent writes whole turns; end role {self._role} first")
        if not self.messages:
            raise ProgramError("an agent needs a message to answer: append user(...) first")
        return ChatPrompt(self.messages, "answer", tools, self.variables)

    def so_far(self) -> Prompt | None:
        """What any continuation surely begins with; None when there is nothing."""
        if not self.is_chat:
            return TextPrompt(self._text) if self._text else None
        if self._role == "assistant" and self._content:
            return ChatPrompt((*self.messages, self._open()), "inside", (), self.variables)
        if not self.messages:
            return None
        return ChatPrompt(self.messages, "message", (), self.variables)

    def all_messages(self) -> list[Json]:
        """Copies, an open one included."""
        found = [dict(message) for message in self.messages]
        if self._role is not None:
            found.append(self._open())
        return found

    def _open(self) -> Json:
        message: Json = {"role": self._role, "content": self._content}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._calls:
            message["tool_calls"] = [call.message_part() for call in self._calls]
        return message
