"""Conversations in the prompt format of DeepSeek-V4.1 (deepseek-v41.md 8.3-8.5).

A prompt is markers, which are ids, and text, which is encoded without the added vocabulary: what a
user writes can never become a marker. The format has three rules that a template could not keep:
tool results are part of a user turn, ordered as the calls that they answer; reasoning of earlier
turns is dropped unless tools are defined; texts between two markers are encoded as one.

    BOS [System head] ( User text | System text | Assistant [think] text [calls] EOS )* Assistant
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import BadRequest
from ..plain_json import plain_json
from .deepseek_v41_texts import EFFORT, FORMAT_HEAD, TOOLS_HEAD, TOOLS_TAIL

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
REMINDER = "<｜latest_reminder｜>"
THINK, END_THINK, DSML = "<think>", "</think>", "｜DSML｜"
MARKERS = (BOS, EOS, SYSTEM, USER, ASSISTANT, REMINDER, THINK, END_THINK, DSML)

DEFAULT_EFFORT = 75
EFFORTS = {"minimal": 50, "low": 50, "medium": 75, "high": 75, "xhigh": 75, "max": 100}

Message = Mapping[str, object]

_IN_TEMPLATE = re.compile(f"({DSML}|{THINK}|{END_THINK})")


@dataclass(frozen=True, slots=True)
class Piece:
    """A marker, or text to be encoded without markers."""

    text: str
    is_marker: bool


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """`effort` is 1..100; `schema` a JSON schema that the reply is to follow. `continues` leaves
    the last message, of the assistant, open."""

    is_thinking: bool = True
    effort: int = DEFAULT_EFFORT
    tools: Sequence[Mapping[str, object]] = ()
    schema: object | None = None
    opens: bool = True
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """`role` is system, user, assistant or latest_reminder."""

    role: str
    text: str
    message: Message


class _Writer:
    """Collects pieces; texts side by side become one."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def mark(self, marker: str) -> None:
        self.pieces.append(Piece(marker, True))

    def text(self, text: str) -> None:
        if not text:
            return
        if self.pieces and not self.pieces[-1].is_marker:
            text = self.pieces.pop().text + text
        self.pieces.append(Piece(text, False))

    def template(self, text: str) -> None:
        """Our own text, in which markers are markers."""
        for part in _IN_TEMPLATE.split(text):
            if part in (DSML, THINK, END_THINK):
                self.mark(part)
            else:
                self.text(part)


def render(messages: Sequence[Message], options: PromptOptions) -> list[Piece]:
    """`messages` have role, content (text), and where they apply reasoning_content, tool_calls
    (arguments as objects) and tool_call_id. Raises: BadRequest."""
    turns = _turns(messages)
    writer = _Writer()
    writer.mark(BOS)
    rest = _head(writer, turns, options)
    for index in range(rest, len(turns)):
        turn = turns[index]
        if turn.role == "assistant":
            is_open = options.continues and index + 1 == len(turns)
            keeps = bool(options.tools) or is_open
            _assistant(writer, turn, keeps and options.is_thinking, is_open)
        else:
            writer.mark(_MARKER_OF[turn.role])
            writer.text(turn.text)
    if options.opens and not options.continues:
        writer.mark(ASSISTANT)
        writer.mark(THINK if options.is_thinking else END_THINK)
    return writer.pieces


_MARKER_OF = {"system": SYSTEM, "user": USER, "latest_reminder": REMINDER}


def _head(writer: _Writer, turns: Sequence[Turn], options: PromptOptions) -> int:
    """The leading system part; returns the index of the first turn after it."""
    has_system = turns[0].role == "system"
    if not (has_system or options.is_thinking or options.tools or options.schema is not None):
        return 0
    writer.mark(SYSTEM)
    if options.is_thinking:
        writer.text(EFFORT.format(options.effort))
    if has_system:
        writer.text(turns[0].text)
    if options.tools:
        writer.text("\n\n")
        writer.template(TOOLS_HEAD)
        writer.text("\n".join(plain_json(_function(tool)) for tool in options.tools))
        writer.template(TOOLS_TAIL)
    if options.schema is not None:
        writer.text("\n\n" + FORMAT_HEAD + plain_json(options.schema))
    return int(has_system)


def _function(tool: Mapping[str, object]) -> dict[str, object]:
    found = tool.get("function", tool)
    assert isinstance(found, Mapping)
    return {key: found[key] for key in ("name", "description", "parameters") if key in found}


def _assistant(writer: _Writer, turn: Turn, is_thinking: bool, is_open: bool) -> None:
    writer.mark(ASSISTANT)
    reasoning = str(turn.message.get("reasoning_content") or "")
    if is_thinking:
        writer.mark(THINK)
        writer.text(reasoning)
        if is_open and not turn.text:
            return  # it goes on thinking
    writer.mark(END_THINK)
    writer.text(turn.text)
    calls = turn.message.get("tool_calls")
    if isinstance(calls, Sequence) and calls:
        writer.text("\n\n")
        _calls(writer, calls)
    if not is_open:
        writer.mark(EOS)


def _calls(writer: _Writer, calls: Sequence[object]) -> None:
    writer.template(f"<{DSML} calls>\n")
    for call in calls:
        assert isinstance(call, Mapping)
        function = call["function"]
        writer.template(f"<{DSML} invoke name=")
        writer.text(f'"{function["name"]}">\n')
        arguments = function["arguments"]
        for key, value in arguments.items():
            is_text = isinstance(value, str)
            writer.template(f"<{DSML} parameter name=")
            writer.text(f'"{key}" string="{"true" if is_text else "false"}">')
            writer.text(str(value) if is_text else plain_json(value))
            writer.template(f"</{DSML} parameter>\n")
        if not arguments:
            writer.text("\n")
        writer.template(f"</{DSML} invoke>\n")
    writer.template(f"</{DSML} calls>")


def _turns(messages: Sequence[Message]) -> list[Turn]:
    """Messages by turn: user messages and tool results side by side are one user turn."""
    if not messages:
        raise BadRequest("messages is empty: it needs at least one message", param="messages")
    turns: list[Turn] = []
    order: list[str] = []  # ids of the newest assistant's calls
    results: list[tuple[int, str]] = []
    words: list[str] = []

    def close() -> None:
        if results or words:
            shown = [text for _, text in sorted(results, key=lambda x: x[0])]
            turns.append(Turn("user", "\n\n".join(shown + words), {}))
        results.clear()
        words.clear()

    for index, message in enumerate(messages):
        role, text = str(message["role"]), str(message.get("content") or "")
        if role == "user":
            words.append(text)
        elif role == "tool":
            call_id = str(message.get("tool_call_id") or "")
            place = order.index(call_id) if call_id in order else len(order)
            results.append((place, f"<tool_result>{text}</tool_result>"))
        elif role in ("system", "developer", "assistant", "latest_reminder"):
            close()
            turns.append(Turn("system" if role == "developer" else role, text, message))
            if role == "assistant":
                order = _call_ids(message)
        else:
            raise BadRequest(
                f"messages[{index}].role must be system, developer, user, assistant or tool, "
                f"found {role!r}",
                param=f"messages[{index}].role",
            )
    close()
    return turns


def _call_ids(message: Message) -> list[str]:
    calls = message.get("tool_calls") or []
    assert isinstance(calls, Sequence)
    return [str(call.get("id") or "") for call in calls]
