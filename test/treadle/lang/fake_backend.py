"""A backend without a server: it says what a test's function says, and remembers what it was asked.

`reply` gets the request and returns a text, an `Answer`, a list of answers or an exception; it may
also be a coroutine function, which a test holds as long as it likes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.lang.backend import (
    Answer,
    AnswerRequest,
    Delta,
    OnDelta,
    ScoreRequest,
    Scores,
    Session,
)
from treadle.lang.choices import ChoiceScore
from treadle.lang.prompt import Prompt, TextPrompt
from treadle.lang.tools import ToolCall

META = {"prompt_tokens": 10, "completion_tokens": 2, "cached_tokens": 4, "replayed_tokens": 0,
        "finish_reason": {"type": "stop"}}  # fmt: skip


def always_42(request: AnswerRequest) -> Any:
    return "42"


def noting(notes: list[int], number: Callable[[], int]) -> Callable[[AnswerRequest], str]:
    """A reply that notes `number()` when it is asked."""

    def reply(request: AnswerRequest) -> str:
        notes.append(number())
        return "42"

    return reply


def text_of(prompt: Prompt) -> str:
    """The text, or the last message's content."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    return str(prompt.messages[-1]["content"])


def calling(*calls: tuple[str, str], text: str = "") -> Answer:
    made = tuple(ToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    return Answer(text, calls=made, meta=dict(META))


@dataclass(eq=False)
class FakeBackend:
    reply: Callable[[AnswerRequest], Any] = always_42
    logprobs: Callable[[str], Sequence[float]] = lambda choice: (-1.0,)
    asked: list[tuple[Session, AnswerRequest]] = field(default_factory=list)
    commits: list[Prompt] = field(default_factory=list)
    scored: list[ScoreRequest] = field(default_factory=list)
    closed: list[Session] = field(default_factory=list)
    cancelled: int = 0
    name: str = "fake"

    @property
    def prompts(self) -> list[str]:
        return [text_of(request.prompt) for _, request in self.asked]

    async def answer(
        self, request: AnswerRequest, session: Session, on_delta: OnDelta | None = None
    ) -> Sequence[Answer]:
        self.asked.append((session, request))
        try:
            found = self.reply(request)
            if inspect.isawaitable(found):
                found = await found
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(found, Exception):
            raise found
        answers = found if isinstance(found, list) else [found]
        made = [a if isinstance(a, Answer) else Answer(a, meta=dict(META)) for a in answers]
        if on_delta is not None:
            if made[0].reasoning:
                on_delta(Delta(reasoning=made[0].reasoning))
            for piece in made[0].text:
                on_delta(Delta(piece))
        return made * request.sampling.num_outputs if len(made) == 1 else made

    async def score(self, request: ScoreRequest, session: Session) -> Scores:
        self.scored.append(request)
        rows = [tuple(self.logprobs(text_of(prompt))) for prompt in request.prompts]
        return Scores(tuple(ChoiceScore(tuple(range(len(row))), row) for row in rows))

    async def commit(self, prompt: Prompt, session: Session) -> dict[str, Any]:
        self.commits.append(prompt)
        return {"prompt_tokens": 10, "cached_tokens": 0}

    async def split_reasoning(self, text: str, parser: str | None) -> tuple[str, str]:
        reasoning, mark, rest = text.partition("</think>")
        return (reasoning, rest) if mark else ("", text)

    async def close_sessions(self, sessions: Sequence[Session]) -> None:
        self.closed += sessions
