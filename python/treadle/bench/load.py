"""Plays conversations against a server: open loop by a clock, closed loop by a limit, or both.

A conversation begins at its time and not before one of `max_concurrency` places is free; its turns
follow one another. An answer that is an error ends its conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .asks import Answer, Ask, Prompt, extended
from .conversations import Conversation
from .sender import Sender


@dataclass(frozen=True, slots=True)
class Pace:
    """`rate`: conversations per second, infinite for all at once. `burstiness`: 1 is a Poisson
    process, less comes in bursts, more evenly (the shape of gamma-distributed gaps).
    `uses_times`: those of the trace instead. `max_concurrency` 0: no limit.
    """

    rate: float
    burstiness: float
    uses_times: bool
    max_concurrency: int


def starts(load: Sequence[Conversation], pace: Pace, rng: random.Random) -> list[float]:
    """Seconds after the run's start, for each. Raises ValueError for a trace without times."""
    if pace.uses_times:
        times = [conversation.at_s for conversation in load]
        first = times[0] if times else None
        if first is None or None in times:
            raise ValueError("--use-trace-timestamps: this dataset has no times")
        return [at_s - first for at_s in times if at_s is not None]
    if pace.rate == float("inf"):
        return [0.0] * len(load)
    shape = pace.burstiness
    found, now = [], 0.0
    for _ in load:
        found.append(now)
        now += rng.gammavariate(shape, 1 / (pace.rate * shape))
    return found


async def play(
    load: Sequence[Conversation],
    at_s: Sequence[float],
    sender: Sender,
    max_concurrency: int,
    on_answer: Callable[[Answer], None],
) -> list[Answer]:
    """In the order of the load, turn by turn. Raises ValueError for a prompt that the backend
    cannot be sent."""
    free = asyncio.Semaphore(max_concurrency) if max_concurrency else contextlib.nullcontext()

    async def one(conversation: Conversation, begin_s: float) -> list[Answer]:
        await asyncio.sleep(max(0.0, begin_s - sender.now_s()))
        async with free:
            return await _converse(conversation, sender, on_answer)

    tasks = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*pair)) for pair in zip(load, at_s, strict=True)]
    except* ValueError as errors:
        raise ValueError(str(errors.exceptions[0])) from None
    return [answer for task in tasks for answer in task.result()]


async def _converse(
    conversation: Conversation, sender: Sender, on_answer: Callable[[Answer], None]
) -> list[Answer]:
    answers: list[Answer] = []
    prompt: Prompt | None = None
    input_len = 0
    for turn in conversation.turns:
        addition = turn.addition
        prompt = addition if prompt is None else extended(prompt, answers[-1].said, addition)
        input_len += turn.input_len
        ask = Ask(prompt, turn.output_len, headers=conversation.headers)
        answer = await sender.send(ask, input_len)
        on_answer(answer)
        answers.append(answer)
        if answer.error:
            break
        input_len += answer.said.output_tokens
    return answers
