"""Messages to prompt text, through the model's chat template.

Owns what a template sees: its variables, its functions and the shape of the messages. Everything
that a client can get wrong is a BadRequest that names the message; a template that refuses
(`raise_exception`) is a BadRequest with its own words.

    messages --shape--> dicts with text (or parts, where the template reads parts) --render--> text

The rendered text spells its special tokens, BOS included: encode it with `add_special=False`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import jinja2

from ..errors import BadRequest, CheckpointError, ConfigError
from .chat_builtin import BUILT_IN, BY_ARCHITECTURE
from .chat_sandbox import BoundedTemplate
from .chat_tools import introduce, spell_calls
from .conversation import Conversation
from .encode import Tokenizer

Message = Mapping[str, object]

_TOOLS = re.compile(r"\btools\b")
_PROBE = "treadle probe"
_END_MARK = "\ue0f0end of the final message\ue0f1"  # private-use characters: no text has them


class ChatTemplate:
    """One template. `tokens` are the texts of `bos_token`, `eos_token` and so on."""

    __slots__ = (
        "_knows_calls",
        "_knows_developer",
        "_reads_parts",
        "_template",
        "_tokens",
        "knows_tools",
        "reasons",
        "name",
        "source",
    )

    def __init__(self, source: str, *, name: str, tokens: Mapping[str, str]) -> None:
        """Raises: ConfigError when the text is no jinja template."""
        self.name = name
        self.source = source
        self.reasons = False  # a parser of reasoning is asked for by flag
        self.knows_tools = _TOOLS.search(source) is not None
        self._knows_calls = "tool_calls" in source
        self._tokens = dict(tokens)
        try:
            self._template = BoundedTemplate(
                source,
                filters={"tojson": _to_json},
                functions={"raise_exception": _refuse, "strftime_now": _strftime_now},
            )
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"chat template {name}, line {error.lineno}: {error}") from None
        self._knows_developer = "developer" in source
        self._reads_parts = not self._shows("text") and self._shows("parts")

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool,
        tools: Sequence[Mapping[str, object]] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> str:
        """`extra` are the request's own variables; they cannot replace ours.

        `continue_final_message` ends the text inside the last message, which must be the
        assistant's, and overrides `add_generation_prompt`. A template that does not know tools
        is given them in words. Raises: BadRequest.
        """
        if not messages:
            raise BadRequest("messages is empty: it needs at least one message", param="messages")
        read = [_read(message, index) for index, message in enumerate(messages)]
        if not self._knows_calls:
            read = spell_calls(read)
        if tools and not self.knows_tools:
            read = introduce(read, tools)
        shaped = [self._shape(message) for message in read]
        if continue_final_message:
            _mark_end(shaped)
        values = {
            **(extra or {}),
            **self._tokens,
            "messages": shaped,
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        text = self._run(values)
        if not continue_final_message:
            return text
        end = text.rfind(_END_MARK)
        if end < 0:
            raise BadRequest(
                "continue_final_message: the chat template does not show the final message",
                param="continue_final_message",
            )
        return text[:end]

    def encode(self, conversation: Conversation, tokenizer: Tokenizer) -> list[int]:
        """Ids of the rendered conversation. Raises: BadRequest."""
        text = self.render(
            conversation.messages,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            tools=conversation.tools,
            extra=conversation.extra,
        )
        return tokenizer.encode(text, add_special=False)

    def _run(self, values: Mapping[str, object]) -> str:
        try:
            return self._template.render(values)
        except _Refusal as error:
            raise BadRequest(f"chat template: {error}", param="messages") from None
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            MemoryError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise BadRequest(f"the chat template failed: {error}", param="messages") from None

    def _shows(self, form: str) -> bool:
        """Whether a user's words come out when they go in as text, or as a list of parts."""
        content = _PROBE if form == "text" else [{"type": "text", "text": _PROBE}]
        values = {**self._tokens, "messages": [{"role": "user", "content": content}]}
        try:
            return _PROBE in self._run({**values, "tools": None, "add_generation_prompt": False})
        except BadRequest:
            return False

    def _shape(self, message: Message) -> dict[str, object]:
        """`message` is one of `_read`."""
        role, text = message["role"], message["content"]
        if role == "developer" and not self._knows_developer:
            role = "system"
        content = [{"type": "text", "text": text}] if self._reads_parts else text
        return {**message, "role": role, "content": content}


def _read(message: Message, index: int) -> Message:
    """With text as content and objects as arguments of calls. Raises BadRequest."""
    where = f"messages[{index}]"
    if not isinstance(message.get("role"), str):
        raise BadRequest(f"{where}.role must be a string", param=f"{where}.role")
    text = content_text(message.get("content"), f"{where}.content")
    read = {**message, "content": text}
    if message.get("tool_calls"):
        read["tool_calls"] = tool_calls(message["tool_calls"], f"{where}.tool_calls")
    return read


def pick_template(tokenizer: Tokenizer, flag: str) -> ChatTemplate | None:
    """The template of `--chat-template`, else the model's own, else the built-in one for its kind.

    `flag` is "", a built-in name, a file, or template text. None: the model has no template, and
    chat requests are to be refused. Raises: ConfigError, CheckpointError.
    """
    tokens = tokenizer.role_texts
    if flag:
        return _from_flag(tokenizer, flag)
    if tokenizer.chat_template is not None:
        try:
            return ChatTemplate(tokenizer.chat_template, name="of the model", tokens=tokens)
        except ConfigError as error:
            raise CheckpointError(f"{error}; --chat-template replaces it") from None
    name = BY_ARCHITECTURE.get(tokenizer.architecture)
    return _built_in(tokenizer, name) if name else None


def _from_flag(tokenizer: Tokenizer, flag: str) -> ChatTemplate:
    if flag in BUILT_IN:
        return _built_in(tokenizer, flag)
    tokens = tokenizer.role_texts
    if "{{" in flag or "{%" in flag:
        return ChatTemplate(flag, name="of --chat-template", tokens=tokens)
    try:
        source = Path(flag).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--chat-template {flag}: expected one of {', '.join(BUILT_IN)}, template text or "
            f"a readable file: {error}"
        ) from None
    return ChatTemplate(source, name=flag, tokens=tokens)


def _built_in(tokenizer: Tokenizer, name: str) -> ChatTemplate:
    bos = tokenizer.role_texts.get("bos_token", "") if tokenizer.add_bos else ""
    return ChatTemplate(
        BUILT_IN[name], name=name, tokens={**tokenizer.role_texts, "bos_token": bos}
    )


def content_text(content: object, where: str, joint: str = "\n") -> str:
    """The text of a content field; parts are joined by line breaks, as other servers do. Raises:
    BadRequest."""
    if content is None:  # an assistant's message that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequest(f"{where} must be a string or a list of parts", param=where)
    texts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(text, str):
            raise BadRequest(
                f"{where}[{index}]: this model takes parts of type text only, found type {kind}",
                param=f"{where}[{index}]",
            )
        texts.append(text)
    return joint.join(texts)


def tool_calls(calls: object, where: str) -> list[dict[str, object]]:
    """Templates want the arguments of a call as an object; clients send them as JSON text. Raises:
    BadRequest."""
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise BadRequest(f"{where} must be a list of objects", param=where)
    return [_tool_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Mapping[str, object], where: str) -> dict[str, object]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise BadRequest(f"{where}.function must be an object", param=f"{where}.function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            param = f"{where}.function.arguments"
            raise BadRequest(f"{param} must be JSON text", param=param) from None
    return {**call, "function": {**function, "arguments": arguments}}


def _mark_end(shaped: list[dict[str, object]]) -> None:
    final = shaped[-1]
    if final["role"] != "assistant":
        raise BadRequest(
            f"continue_final_message needs a last message of the assistant, found one of the "
            f"{final['role']}",
            param="continue_final_message",
        )
    content = final["content"]
    if isinstance(content, str):
        final["content"] = content + _END_MARK
    elif isinstance(content, list):
        final["content"] = [*content[:-1], {**content[-1], "text": content[-1]["text"] + _END_MARK}]


class _Refusal(jinja2.TemplateError):
    """A template's own `raise_exception`."""


def _refuse(message: object) -> NoReturn:
    raise _Refusal(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As in transformers: jinja's own escapes `<` and `'` for HTML, which no model was shown."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
