"""Spells one generation as a message of Anthropic's API, whole or as events."""

from __future__ import annotations

from ..errors import TreadleError
from ..messages import Usage
from ..net.error_bodies import anthropic_error_body
from ..parse.events import Content, Reasoning, ToolArguments
from ..tokenizer.choice import Delta
from ..tokenizer.generation import Generation
from .answering import Framing
from .anthropic_blocks import (
    BlockEvents,
    Members,
    WholeBlocks,
    named_event,
    stop_members,
    usage_body,
)
from .chat_output import CallStart, ChatOutput, OutputEvent

_NOT_STOPPED: Members = {"stop_reason": None, "stop_sequence": None}


class MessageAnswer:
    """Also the writer of its events."""

    def __init__(
        self, generation: Generation, model: str, output: ChatOutput, *, has_cache_report: bool
    ) -> None:
        self._head: Members = {
            "id": generation.rid,
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._output = output
        self._has_cache_report = has_cache_report
        self._blocks = BlockEvents()
        self._is_started = False

    def body(self, deltas: list[Delta]) -> Members:
        blocks, stop = WholeBlocks(), _NOT_STOPPED
        (delta,) = deltas
        for event in self._output.push(delta):
            if isinstance(event, Content):
                blocks.text(event.text)
            elif isinstance(event, Reasoning):
                blocks.thinking(event.text)
            elif isinstance(event, CallStart):
                blocks.call(_call_id(event), event.name)
            elif isinstance(event, ToolArguments):
                blocks.arguments(event.text)
            else:
                stop = stop_members(event.ending)
        usage = self._usage(delta.usage)
        return {**self._head, "content": blocks.content(), **stop, "usage": usage}

    def begin(self) -> bytes:
        return b""

    def write(self, delta: Delta) -> bytes:
        """The first delta begins the message, for only then its cached tokens are known."""
        parts = [] if self._is_started else [self._start(delta.usage)]
        self._is_started = True
        parts.extend(self._event(event, delta.usage) for event in self._output.push(delta))
        return b"".join(parts)

    def end(self) -> bytes:
        return named_event("message_stop", {})

    def _start(self, usage: Usage) -> bytes:
        message = {**self._head, "content": [], **_NOT_STOPPED, "usage": self._usage(usage)}
        return named_event("message_start", {"message": message}) + named_event("ping", {})

    def _event(self, event: OutputEvent, usage: Usage) -> bytes:
        blocks = self._blocks
        if isinstance(event, Content):
            return blocks.text(event.text)
        if isinstance(event, Reasoning):
            return blocks.thinking(event.text)
        if isinstance(event, CallStart):
            return blocks.call(_call_id(event), event.name)
        if isinstance(event, ToolArguments):
            return blocks.arguments(event.text)
        members = {"delta": stop_members(event.ending), "usage": self._usage(usage)}
        return blocks.close() + named_event("message_delta", members)

    def _usage(self, usage: Usage) -> Members:
        return usage_body(usage, has_cache_report=self._has_cache_report)


def _call_id(event: CallStart) -> str:
    return f"toolu_{event.id.removeprefix('call_')}"


def _error(error: TreadleError) -> bytes:
    return named_event("error", anthropic_error_body(error))


FRAMING = Framing(done=b"", error=_error)
