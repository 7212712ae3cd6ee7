"""Load from files: Mooncake's trace, ShareGPT, lines of prompts or messages, agentic traces.

Nothing is downloaded. A line of `jsonl` (`custom`, `openai`) has one of

    prompt         text, or a list of token ids
    messages       a list of {role, content}; a last one of the assistant tells the output's length
    conversations  a list of {from | role, value | content}: the first is the prompt, the second
                   tells the length of the output

and may have `output_len` (or `max_tokens`, `max_completion_tokens`) and `timestamp` in ms.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from .asks import Json, Message, Prompt
from .conversations import Conversation, Turn
from .malformed import length, told
from .traces import Speller, read_chats
from .vocabulary import Vocabulary

AGENTIC_OUTPUT = 220  # tokens of a turn of an agentic trace that says nothing
OUTPUT_FIELDS = ("output_len", "max_tokens", "max_completion_tokens")

Count = Callable[[str], Awaitable[int]]  # tokens of a text


@dataclass(frozen=True, slots=True)
class Slice:
    """Of a file's entries. `count` 0: all after `offset`."""

    offset: int = 0
    count: int = 0

    def of(self, rows: Sequence[Any]) -> Sequence[Any]:
        return rows[self.offset : self.offset + self.count if self.count else None]


@dataclass(frozen=True, slots=True)
class TraceScale:
    """`slowdown` stretches times; `length` is the factor of all lengths. A prompt is asked `rounds`
    times, each time behind the answer to the one before.
    """

    slowdown: float
    length: float
    as_ids: bool
    rounds: int


def mooncake(path: Path, part: Slice, scale: TraceScale, words: Vocabulary) -> list[Conversation]:
    """A block is 512 tokens of its own (times the length scale), the same for the same id. Raises
    ValueError for a scale that leaves no whole tokens, or ids without a tokenizer."""
    if scale.as_ids and not words.ids:
        raise ValueError("token ids need a tokenizer: give --tokenizer")
    sessions = read_chats(path, scale.length)
    speller, found = Speller(), []
    last = part.offset + part.count if part.count else len(sessions)
    for session in sessions[part.offset : last]:
        turn = session.turns[0]
        numbers = speller.ids(turn, 0)[: turn.prompt]
        first: Prompt = words.worded(numbers)
        again = first
        if scale.as_ids:
            again = array("i", words.spelled(numbers))
            first = (array("i", words.prefix) + again)[: turn.prompt]
        parts = [first, *[again] * (scale.rounds - 1)]
        at_s = (session.start_s or 0.0) * scale.slowdown
        turns = tuple(Turn(part, turn.prompt, turn.output) for part in parts)
        found.append(Conversation(turns, at_s))
    return found


async def lines(path: Path, part: Slice, output_len: int, count: Count) -> list[Conversation]:
    """`output_len` (0: as the line says) goes before what a line says. Raises ValueError naming
    the entry."""
    found = []
    for number, row in enumerate(part.of(_rows(path)), 1 + part.offset):
        with told(f"{path.name}, entry {number}"):
            prompt, expected = _prompt(row)
            output = output_len or next((int(row[f]) for f in OUTPUT_FIELDS if row.get(f)), 0)
            output = output or (await count(expected) if expected else 0)
            if output < 1:
                raise ValueError("no output_len, and none given")
            at_s = row["timestamp"] / 1000 if "timestamp" in row else None
            input_len = len(prompt) if isinstance(prompt, array) else await count(_text(prompt))
            found.append(Conversation((Turn(prompt, input_len, length(output)),), at_s))
    return found


def agentic(path: Path, part: Slice, max_turns: int, output_len: int) -> list[Conversation]:
    """`{conversations: [[{messages, prompt_tokens}, ...], ...]}`: each turn's new messages.
    `max_turns` 0: all. Raises ValueError."""
    with told(path.name):
        rows: list[Any] = orjson.loads(path.read_bytes())["conversations"]
        if not isinstance(rows, list):
            raise ValueError("`conversations` is no list")
    found = []
    for number, row in enumerate(part.of(rows), 1 + part.offset):
        with told(f"{path.name}, conversation {number}"):
            parts = [_messages(turn["messages"]) for turn in row[: max_turns or None]]
            if not parts:
                raise ValueError("no turns")
            output = output_len or AGENTIC_OUTPUT
            found.append(Conversation(tuple(Turn(p, _num_words(p), output) for p in parts)))
    return found


def _messages(rows: list[Json]) -> tuple[Message, ...]:
    """Raises ValueError, and what `told` tells."""
    found = tuple(Message(row["role"], row["content"] or "") for row in rows)
    if not all(isinstance(text, str) for one in found for text in (one.role, one.content)):
        raise ValueError("role and content of a message must be text")
    return found


def _num_words(messages: Sequence[Message]) -> int:
    return sum(len(message.content.split()) for message in messages)


def _rows(path: Path) -> list[Json]:
    """Of a JSON array, or of lines."""
    data = path.read_bytes()
    if data.lstrip().startswith(b"["):
        with told(path.name):
            return list(orjson.loads(data))
    return list(_lines(path, data))


def _lines(path: Path, data: bytes) -> Iterator[Json]:
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{path.name}, line {number}: {error}") from None


def _prompt(row: Json) -> tuple[Prompt, str]:
    """And the text that is expected as output, "" where the line has none. Raises ValueError, and
    what `told` tells."""
    if isinstance(row.get("prompt"), str):
        return row["prompt"], ""
    if isinstance(row.get("prompt"), list):
        return array("i", row["prompt"]), ""
    if isinstance(row.get("messages"), list):
        messages = _messages(row["messages"])
        if messages and messages[-1].role == "assistant":
            return messages[:-1], messages[-1].content
        return messages, ""
    if isinstance(row.get("conversations"), list) and row["conversations"]:
        texts = [part.get("value") or part.get("content") or "" for part in row["conversations"]]
        if not all(isinstance(text, str) for text in texts[:2]):
            raise ValueError("parts of a conversation must be text")
        return texts[0], texts[1] if len(texts) > 1 else ""
    raise ValueError("none of prompt, messages, conversations")


def _text(prompt: Prompt) -> str:
    assert not isinstance(prompt, array)
    return prompt if isinstance(prompt, str) else " ".join(m.content for m in prompt)
