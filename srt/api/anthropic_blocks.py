"""An answer as Anthropic's content blocks, whole or as events.

    message_start ping [ content_block_start content_block_delta... content_block_stop ]...
    message_delta message_stop

At most one block is open, blocks are numbered from 0, and a block is opened by its first piece. An
event costs one escaping of its text and one join.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from ..messages import Usage
from ..net.sse import DATA, END
from ..tokenizer.trail import Ending

Members = dict[str, object]

# Clients hand signatures back unread; nothing is signed, for nothing of a prompt is trusted.
SIGNATURE = "unsigned"
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def usage_body(usage: Usage, *, has_cache_report: bool) -> Members:
    """Anthropic counts cached tokens beside `input_tokens`, not among them."""
    cached = usage.cached_tokens if has_cache_report else 0
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    }


def stop_members(ending: Ending) -> Members:
    """`stop_reason` and `stop_sequence`; other reasons ("abort") keep their word."""
    if ending.reason == "stop" and isinstance(ending.matched, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": ending.matched}
    reason = REASONS.get(ending.reason, ending.reason)
    return {"stop_reason": reason, "stop_sequence": None}


def named_event(name: str, members: Mapping[str, object]) -> bytes:
    body = orjson.dumps({"type": name, **members})
    return b"".join((b"event: ", name.encode(), b"\n", DATA, body, END))


class BlockEvents:
    """Makes the events between the start of a message and its end."""

    def __init__(self) -> None:
        self._kind = ""  # of the open block; "" when none is
        self._index = -1
        self._head = b""  # of the open block's deltas

    def text(self, text: str) -> bytes:
        start = self._need("text", {"type": "text", "text": ""})
        return start + self._delta(b'"text_delta","text":', text)

    def thinking(self, text: str) -> bytes:
        start = self._need("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return start + self._delta(b'"thinking_delta","thinking":', text)

    def call(self, call_id: str, name: str) -> bytes:
        block: Members = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        return self.close() + self._open("tool_use", block)

    def arguments(self, text: str) -> bytes:
        """Goes on the call opened last."""
        return self._delta(b'"input_json_delta","partial_json":', text)

    def close(self) -> bytes:
        if not self._kind:
            return b""
        end = b""
        if self._kind == "thinking":
            end = self._delta(b'"signature_delta","signature":', SIGNATURE)
        self._kind = ""
        return end + named_event("content_block_stop", {"index": self._index})

    def _need(self, kind: str, block: Members) -> bytes:
        return b"" if self._kind == kind else self.close() + self._open(kind, block)

    def _open(self, kind: str, block: Members) -> bytes:
        self._kind = kind
        self._index += 1
        self._head = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":' % self._index
        )
        return named_event("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, name: bytes, text: str) -> bytes:
        return b"".join((self._head, name, orjson.dumps(text), b"}}", END))


class WholeBlocks:
    """The blocks themselves: what a client has after it has read all events."""

    def __init__(self) -> None:
        self._blocks: list[tuple[str, Members, list[str]]] = []

    def text(self, text: str) -> None:
        self._need("text", {})
        self._blocks[-1][2].append(text)

    def thinking(self, text: str) -> None:
        self._need("thinking", {})
        self._blocks[-1][2].append(text)

    def call(self, call_id: str, name: str) -> None:
        self._blocks.append(("tool_use", {"id": call_id, "name": name}, []))

    def arguments(self, text: str) -> None:
        self._blocks[-1][2].append(text)

    def content(self) -> list[Members]:
        return [_block(kind, own, "".join(texts)) for kind, own, texts in self._blocks]

    def _need(self, kind: str, own: Members) -> None:
        if not self._blocks or self._blocks[-1][0] != kind:
            self._blocks.append((kind, own, []))


def _block(kind: str, own: Members, text: str) -> Members:
    if kind == "thinking":
        return {"type": kind, "thinking": text, "signature": SIGNATURE}
    if kind == "tool_use":
        return {"type": kind, **own, "input": _input(text)}
    return {"type": kind, "text": text}


def _input(text: str) -> Members:
    """Arguments that are no JSON object, perhaps cut off, are given as the model wrote them."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {"invalid_json": text}
    return value if isinstance(value, dict) else {"invalid_json": text}
