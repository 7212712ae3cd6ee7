"""Plays agents against one server: a number of sessions at once, each waiting for its answers.

A lane takes the next session when its last one ends. Turns of a session follow one another in the
order of the trace; the next is sent a while after the answer to the one before: the recorded time
between the two requests times the time scale, cut at a limit, or at once. An answer that is an
error ends its session.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from .agent_text import SessionText
from .asks import Answer, Ask
from .sender import Sender
from .traces import Session, Turn
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Choice:
    """Of the trace: `max_turns` of a session (0: all) that begins between the shares `start_low`
    and `start_high` of its turns; `context_len`: longer ones are left out, 0: none.
    """

    max_turns: int
    context_len: int
    start_low: float
    start_high: float
    seed: int


@dataclass(frozen=True, slots=True)
class Pace:
    """`num_sessions` 0: as many as come; `seconds` 0: no limit, else no turn begins later."""

    concurrency: int
    num_sessions: int
    seconds: float
    time_scale: float
    max_think_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """Turns [`first`, `last`) of a session."""

    session: Session
    first: int
    last: int

    @property
    def turns(self) -> Sequence[Turn]:
        return self.session.turns[self.first : self.last]


@dataclass(frozen=True, slots=True)
class Sample:
    """`number`: of the turn in the trace's session. `best`: tokens of its prompt that a cache which
    forgets nothing has of this session: no last prompt token, whose logits are wanted, and no last
    output token, which was never an input."""

    session: str
    number: int
    best: int
    answer: Answer


def choose(sessions: Sequence[Session], choice: Choice) -> list[Part]:
    """In an order that the seed shuffles. Raises ValueError when none fits."""
    if not sessions:
        raise ValueError("the trace has no session")
    rng = random.Random(choice.seed)
    found = []
    for session in rng.sample(sessions, len(sessions)):
        count = len(session.turns)
        first = min(count - 1, int(rng.uniform(choice.start_low, choice.start_high) * count))
        part = Part(session, first, min(count, first + (choice.max_turns or count)))
        longest = max(turn.prompt + turn.output for turn in part.turns)
        if not choice.context_len or longest <= choice.context_len:
            found.append(part)
    if not found:
        raise ValueError(f"no session of the trace fits into {choice.context_len} tokens")
    return found


class Player:
    """`run`: in every session's name and text, so that no two runs have a prompt in common.
    `is_live`: of `SessionText`.
    """

    def __init__(
        self, parts: Sequence[Part], words: Vocabulary, run: str, *, is_live: bool
    ) -> None:
        self._parts = parts
        self._words = words
        self._run = run
        self._is_live = is_live

    async def play(
        self, sender: Sender, pace: Pace, on_answer: Callable[[Answer], None]
    ) -> list[Sample]:
        """Raises ValueError for prompts that the backend cannot be sent."""
        numbers = iter(range(pace.num_sessions)) if pace.num_sessions else itertools.count()
        samples: list[Sample] = []

        async def lane() -> None:
            for number in numbers:
                if _is_over(sender, pace):
                    return
                part = self._parts[number % len(self._parts)]
                name = f"{part.session.key}/{self._run}/{number}"
                async for sample in self._turns(part, name, sender, pace):
                    samples.append(sample)
                    on_answer(sample.answer)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(pace.concurrency):
                    group.create_task(lane())
        except* ValueError as errors:
            raise ValueError(str(errors.exceptions[0])) from None
        return samples

    async def _turns(
        self, part: Part, name: str, sender: Sender, pace: Pace
    ) -> AsyncIterator[Sample]:
        is_chat, is_live, copy = sender.is_chat, self._is_live, _copy(name)
        text = SessionText(part.session, copy, self._words, is_chat=is_chat, is_live=is_live)
        played: list[Turn] = []
        for number, turn in enumerate(part.turns, part.first):
            if played:
                think_s = (turn.at_s - played[-1].at_s) * pace.time_scale
                await asyncio.sleep(min(think_s, pace.max_think_s))
            if _is_over(sender, pace):
                return
            ask = Ask(text.prompt(turn), turn.output, session=name)
            answer = await sender.send(ask, turn.prompt)
            best = max((in_common(turn, other) for other in played), default=0)
            yield Sample(name, number, best, answer)
            if answer.error:
                return
            text.note(turn, answer.said)
            played.append(turn)


def in_common(turn: Turn, before: Turn) -> int:
    """Leading tokens of a prompt that are computed once `before` was answered."""
    length = 0
    for own, other in zip(turn.runs, before.runs, strict=False):
        if own[:2] == other[:2]:
            length += min(own[2], other[2]) - own[1]
        if own != other:
            break
    return min(length, turn.prompt - 1, before.prompt + before.output - 1)


def _is_over(sender: Sender, pace: Pace) -> bool:
    return bool(pace.seconds) and sender.now_s() >= pace.seconds


def _copy(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little")
