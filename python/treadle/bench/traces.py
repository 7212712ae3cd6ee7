"""Traces as sessions of turns whose prompts are spelled as runs of ids. Knows no cache.

A run `(owner, start, end)` stands for the ids of positions [start, end) in the text of `owner`, so
that prompts share a prefix where they have the same runs. A turn of an agent owns what it adds to
its parent's text and what is generated after it; a chat request is spelled by the blocks that the
trace names. Lengths are tokens of the trace times `scale`; blocks stay whole, so `scale` times the
block must be whole too. Times are seconds as recorded.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from .malformed import length, told

CHAT_BLOCK = 512
MAX_TURNS = 1 << 12  # of a session: what owners are numbered by
_MASK = (1 << 64) - 1

Run = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a model. `at_s`: since the session's begin. `after`: the turn that must have been
    answered before, -1 for none. `shared`: leading tokens of the prompt that `after` has left in a
    cache that forgets nothing. `runs` spell prompt and output; `owner` is that of the output.
    """

    at_s: float
    prompt: int
    output: int
    after: int
    shared: int
    owner: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """`key`: what a client would send as its session's id. `start_s`: None where it is for the
    simulation to say.
    """

    key: str
    turns: tuple[Turn, ...]
    start_s: float | None = None
    followers: dict[int, tuple[int, ...]] = field(default_factory=dict)


def read_agents(
    path: Path, scale: float, max_turns: int = 0, max_gap_s: float = math.inf
) -> list[Session]:
    """`max_turns`: of each session, its first by time; 0: all. `max_gap_s`: longer gaps between
    turns become as long as that. Raises ValueError naming the line, OSError."""
    sessions = []
    for number, line in enumerate(path.read_bytes().splitlines()):
        with told(f"{path.name}, line {number + 1}"):
            row = orjson.loads(line)
            block = whole(row["block_tokens"] * scale)
            turns = _turns(row["requests"], number, block, scale)
            kept = _first(turns, max_turns or len(turns), max_gap_s)
            sessions.append(Session(str(row["id"]), kept, None, _followers(kept)))
    return sessions


def read_chats(path: Path, scale: float) -> list[Session]:
    """A session for each request, since the trace tells none; requests that have the first two
    blocks in common have the same key, as a router derives it from the first message. Raises
    ValueError naming the line, OSError.
    """
    block = whole(CHAT_BLOCK * scale)
    sessions: list[Session] = []
    seen: set[tuple[int, ...]] = set()
    for number, line in enumerate(path.read_bytes().splitlines()):
        with told(f"{path.name}, line {number + 1}"):
            row = orjson.loads(line)
            blocks = tuple(map(int, row["hash_ids"]))
            prompt = length(row["input_length"] * scale)
            output = length(row["output_length"] * scale)
            start_s = row["timestamp"] / 1000
        owner = -1 - number
        lengths = [min(block, prompt - i * block) for i in range(len(blocks))]
        runs = [(b, 0, n) for b, n in zip(blocks, lengths, strict=True) if n > 0]
        known = next((n for n in range(len(blocks), 0, -1) if blocks[:n] in seen), 0)
        seen.update(blocks[:n] for n in range(1, len(blocks) + 1))
        shared = min(known * block, prompt)
        runs.append((owner, prompt, prompt + output))
        turn = Turn(0.0, prompt, output, -1, shared, owner, tuple(runs))
        key = "-".join(map(str, blocks[:2]))
        sessions.append(Session(key, (turn,), start_s, {-1: (0,)}))
    return sessions


class Speller:
    """Ids of a trace's turns. All copies of a trace share one spelling, and each copy moves all of
    its ids by a number of its own: so no two copies have a prefix in common.
    """

    def __init__(self) -> None:
        self._spelled: dict[int, NDArray[np.int32]] = {}

    def ids(self, turn: Turn, copy: int) -> array[int]:
        """Of prompt and output."""
        known = self._spelled.get(turn.owner)
        if known is None:
            parts = [np.arange(start, end) + mix(0, owner) for owner, start, end in turn.runs]
            known = self._spelled[turn.owner] = np.concatenate(parts).astype(np.int32)
        return array("i", (known + np.int32(mix(1, copy))).tobytes())


def drawn(spelled: array[int], count: int) -> list[int]:
    """Numbers below `count`, equal where `spelled` is equal and otherwise as good as random."""
    values = np.frombuffer(spelled, np.int32).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    found: list[int] = ((values >> np.uint64(33)) % np.uint64(count)).tolist()
    return found


def mix(seed: int, value: int) -> int:
    """29 bits, the same in every process."""
    value = (seed * 0x9E3779B97F4A7C15 + value * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) >> 35


def whole(tokens: float) -> int:
    """Raises ValueError for a block that is not whole tokens."""
    if tokens < 1 or tokens != int(tokens):
        raise ValueError(f"a block of {tokens} tokens: the length scale must leave whole tokens")
    return int(tokens)


def _turns(rows: list[list[float]], number: int, block: int, scale: float) -> list[Turn]:
    """In the order of the trace, where parents come first. A few are dated before their parents;
    they are as late as those. Raises ValueError."""
    if not rows:
        raise ValueError("a session without requests")
    turns: list[Turn] = []
    for index, (at_s, given, made, parent, shared_blocks, *_) in enumerate(rows):
        prompt, output = length(given * scale), length(made * scale)
        if parent >= index:
            raise ValueError(f"request {index} has the parent {parent}, which is not before it")
        owner = number * MAX_TURNS + index
        before = turns[int(parent)] if parent >= 0 else None
        common = 0 if before is None else _common(before, prompt, int(shared_blocks) * block, block)
        kept = () if before is None else tuple(_cut(before.runs, common))
        runs = (*kept, (owner, common, prompt + output))
        at_s = at_s if before is None else max(at_s, before.at_s)
        turns.append(Turn(at_s, prompt, output, int(parent), common, owner, runs))
    return turns


def _common(before: Turn, prompt: int, shared: int, block: int) -> int:
    """Tokens of `before` that a later prompt begins with: where it has the whole prompt, the output
    follows in it.
    """
    has_all = shared >= before.prompt // block * block
    return min(prompt, before.prompt + before.output if has_all else min(shared, before.prompt))


def _cut(runs: Iterable[Run], length: int) -> Iterator[Run]:
    for owner, start, end in runs:
        take = min(end - start, length)
        if take <= 0:
            return
        yield owner, start, start + take
        length -= take


def _first(turns: list[Turn], count: int, max_gap_s: float) -> tuple[Turn, ...]:
    """The first by time, numbered anew; of equal times parents come first."""
    order = sorted(range(len(turns)), key=lambda i: (turns[i].at_s, i))[:count]
    places = {index: place for place, index in enumerate(order)} | {-1: -1}
    times = [turns[i].at_s for i in order]
    gaps = [min(max_gap_s, after - before) for before, after in pairwise(times)]
    kept_times = accumulate(gaps, initial=times[0])
    return tuple(
        replace(turns[i], after=places[turns[i].after], at_s=at_s)
        for i, at_s in zip(order, kept_times, strict=True)
    )


def _followers(turns: tuple[Turn, ...]) -> dict[int, tuple[int, ...]]:
    """By turn, those that wait for it; -1: those that wait for none."""
    found: dict[int, list[int]] = {}
    for index, turn in enumerate(turns):
        found.setdefault(turn.after, []).append(index)
    return {after: tuple(indices) for after, indices in found.items()}
