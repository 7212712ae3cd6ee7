"""What a model says in a chat, put in order: deltas of one choice -> events, for any dialect.

    Delta --text--> reasoning | content --> content | calls --> events, and a Finish at the end

Used by every route that answers as a chat, whole or streamed. Invariant: the events of a text do
not depend on how it was cut into deltas (`parse/feed.py`), so a whole answer is the sum of its
stream.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..parse.calls import CallParser
from ..parse.events import Content, Event, Reasoning, ToolArguments, ToolStart
from ..parse.reasoning import TAIL_TOKENS, ReasoningFormat, ReasoningParser, opened_by
from ..parse.tools import Dialect
from ..tokenizer.choice import Delta
from ..tokenizer.detokenize import Detokenizer
from ..tokenizer.encode import Tokenizer
from ..tokenizer.trail import Ending
from .output_formats import OutputFormats
from .tool_use import ToolUse


@dataclass(frozen=True, slots=True)
class CallStart:
    """The first news of call `index` (from 0 in each choice); its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Finished:
    """`ending.reason` is "tool_calls" when the model stopped by itself after opening a call."""

    ending: Ending


OutputEvent = Reasoning | Content | CallStart | ToolArguments | Finished


@dataclass(frozen=True, slots=True)
class ReasoningWishes:
    """`is_separate`: apart from the content. `is_streamed`: as it comes, else in one piece when it
    ends. `is_shown`: at all.
    """

    is_separate: bool = True
    is_streamed: bool = True
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class OutputRules:
    """How the choices of one request are read. `is_open` is what the end of the prompt says."""

    reasoning: ReasoningFormat | None = None
    is_open: bool | None = None
    dialect: Dialect | None = None
    tool_names: frozenset[str] = frozenset()
    max_calls: int | None = None
    wishes: ReasoningWishes = ReasoningWishes()
    shown_ids: frozenset[int] = frozenset()

    @property
    def is_inside(self) -> bool:
        """The first token of an answer is reasoning."""
        if self.reasoning is None:
            return False
        return self.reasoning.is_forced if self.is_open is None else self.is_open

    @property
    def is_plain(self) -> bool:
        """Text is content as it is."""
        return self.reasoning is None and self.dialect is None


def output_rules(formats: OutputFormats, tools: ToolUse, wishes: ReasoningWishes) -> OutputRules:
    """All but `is_open`, for which `after_prompt` needs the prompt."""
    reasoning = formats.reasoning if wishes.is_separate else None
    dialect = formats.dialect if tools.is_parsed else None
    return OutputRules(
        reasoning=reasoning,
        dialect=dialect,
        tool_names=tools.names,
        max_calls=tools.max_calls,
        wishes=wishes,
        shown_ids=formats.shown_ids if reasoning or dialect else frozenset(),
    )


def after_prompt(
    rules: OutputRules, tokenizer: Tokenizer, prompt_ids: Sequence[int]
) -> OutputRules:
    """The rules of answers to this prompt, whose template may have begun the reasoning."""
    if rules.reasoning is None:
        return rules
    tail = tokenizer.decode(prompt_ids[-TAIL_TOKENS:], skip_special=False)
    return replace(rules, is_open=opened_by(rules.reasoning, tail))


class ChatOutput:
    """One choice. `push` its deltas in order; the one with an ending gives the last event."""

    def __init__(self, rules: OutputRules, tokenizer: Tokenizer) -> None:
        self._rules = rules
        self._is_plain = rules.is_plain
        self._reasoning: ReasoningParser | None = None
        self._meter: ReasoningMeter | None = None
        self._calls: CallParser | None = None
        self._unsent: list[str] = []  # reasoning that waits for its end
        self._num_calls = 0
        if rules.reasoning is not None:
            self._reasoning = ReasoningParser(rules.reasoning, is_open=rules.is_open)
            self._meter = ReasoningMeter(rules, tokenizer)
        if rules.dialect is not None:
            self._calls = rules.dialect.parser(rules.tool_names)

    @property
    def reasoning_tokens(self) -> int:
        """Of the deltas so far, tags included."""
        return self._meter.count if self._meter else 0

    def push(self, delta: Delta) -> list[OutputEvent]:
        if self._is_plain and delta.ending is None:
            return [Content(delta.text)] if delta.text else []
        if self._meter is not None:
            self._meter.push(delta.token_ids)
        is_last = delta.ending is not None
        events: list[OutputEvent] = []
        for event in self._split(delta.text, is_last=is_last):
            if isinstance(event, Content) and self._calls is not None:
                for found in self._calls.push(event.text):
                    self._add(events, found)
            else:
                self._add(events, event)
        if is_last and self._calls is not None:
            for found in self._calls.finish():
                self._add(events, found)
        if delta.ending is not None:
            self._release(events)
            events.append(Finished(self._ending(delta.ending)))
        return events

    def _split(self, text: str, *, is_last: bool) -> list[Event]:
        if self._reasoning is None:
            return [Content(text)] if text else []
        events = self._reasoning.push(text)
        return [*events, *self._reasoning.finish()] if is_last else events

    def _add(self, events: list[OutputEvent], event: Event) -> None:
        if isinstance(event, Reasoning):
            self._add_reasoning(events, event)
            return
        self._release(events)
        if isinstance(event, Content):
            events.append(event)
        elif self._rules.max_calls is not None and event.index >= self._rules.max_calls:
            return
        elif isinstance(event, ToolStart):
            self._num_calls += 1
            events.append(CallStart(event.index, new_call_id(), event.name))
        else:
            events.append(event)

    def _add_reasoning(self, events: list[OutputEvent], event: Reasoning) -> None:
        wishes = self._rules.wishes
        if wishes.is_shown and wishes.is_streamed:
            events.append(event)
        elif wishes.is_shown:
            self._unsent.append(event.text)

    def _release(self, events: list[OutputEvent]) -> None:
        if self._unsent:
            events.append(Reasoning("".join(self._unsent)))
            self._unsent.clear()

    def _ending(self, ending: Ending) -> Ending:
        if self._num_calls and ending.reason == "stop":
            return replace(ending, reason="tool_calls")
        return ending


class ReasoningMeter:
    """Counts the ids of the reasoning one by one, for deltas may hold many. `count` goes up to the
    id that completed the end tag, and is 0 while nothing shows that there is reasoning.
    """

    def __init__(self, rules: OutputRules, tokenizer: Tokenizer) -> None:
        form = rules.reasoning
        self._parser = ReasoningParser(form, is_open=rules.is_open) if form else None
        self._detokenizer = Detokenizer(tokenizer, skip_special=False, after_prompt=True)
        self._num_ids = 0
        self.count = 0

    def push(self, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if self._parser is None:
                return
            self._num_ids += 1
            self._parser.push(self._detokenizer.push(token_id))
            if self._parser.has_reasoned:
                self.count = self._num_ids
            if self._parser.is_settled:
                self._parser = None


@dataclass(slots=True)
class ToolCallText:
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class ChatText:
    """A whole answer. `content` and `reasoning` are None when there is none."""

    content: str | None = None
    reasoning: str | None = None
    calls: list[ToolCallText] = field(default_factory=list)
    ending: Ending | None = None


def whole(events: Iterable[OutputEvent]) -> ChatText:
    """The sum of all events of a choice."""
    text = ChatText()
    for event in events:
        if isinstance(event, Content):
            text.content = (text.content or "") + event.text
        elif isinstance(event, Reasoning):
            text.reasoning = (text.reasoning or "") + event.text
        elif isinstance(event, CallStart):
            text.calls.append(ToolCallText(event.id, event.name))
        elif isinstance(event, ToolArguments):
            text.calls[event.index].arguments += event.text
        else:
            text.ending = event.ending
    return text


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
