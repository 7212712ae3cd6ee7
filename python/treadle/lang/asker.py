"""A branch's way to its backend: every request and tool call goes through here and is recorded.

Answers of an earlier run, when there is one to resume, are taken from it as long as the same is
asked; then a tool that has run is not run again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..client.errors import BrokenAnswer
from .backend import Answer, AnswerRequest, Backend, Delta, OnDelta, ScoreRequest, Scores, Session
from .past import Past
from .prompt import Prompt
from .recorder import Asked, Recorder, Told
from .tools import ToolCall, ToolResult

T = TypeVar("T", bound=Told)
Json = dict[str, Any]


@dataclass(slots=True, eq=False)
class Asker:
    """`last_s`: monotonic time of the last request's end; `num_open` of those that run."""

    backend: Backend
    session: Session
    recorder: Recorder
    past: Past | None = None
    num_open: int = 0
    last_s: float = field(default_factory=time.monotonic)

    async def answer(
        self, request: AnswerRequest, name: str | None, on_delta: OnDelta | None
    ) -> Sequence[Answer]:
        known = self.past.answers(request) if self.past is not None else None
        if known is not None:
            if on_delta is not None:
                on_delta(Delta(known[0].text, known[0].reasoning))
            return self._recall("generate", name, request, known)
        work = self.backend.answer(request, self.session, on_delta)
        answers = await self._ask("generate", name, request, work)
        if not answers:
            raise BrokenAnswer(f"{self.backend.name}: an answer without an output")
        return answers

    async def score(self, request: ScoreRequest, name: str | None) -> Scores:
        known = self.past.scores(request) if self.past is not None else None
        if known is not None:
            return self._recall("select", name, request, known)
        work = self.backend.score(request, self.session)
        return await self._ask("select", name, request, work)

    async def commit(self, prompt: Prompt) -> Json:
        return await self._ask("commit", None, prompt, self.backend.commit(prompt, self.session))

    async def tool(
        self, call: ToolCall, name: str | None, run: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> ToolResult:
        """By `run`, unless the call has a result already."""
        known = self.past.result(call) if self.past is not None else None
        if known is not None:
            return self._recall("tool", name, call, known)
        entry = self.recorder.begin("tool", self.session.id, name, call)
        return await self._record(entry, run(call))

    def _recall(self, kind: str, name: str | None, asked: Asked, told: T) -> T:
        entry = self.recorder.begin(kind, self.session.id, name, asked)
        entry.is_recalled = True
        self.recorder.end(entry, told)
        return told

    async def _ask(self, kind: str, name: str | None, asked: Asked, work: Awaitable[T]) -> T:
        self.num_open += 1
        try:
            return await self._record(self.recorder.begin(kind, self.session.id, name, asked), work)
        finally:
            self.num_open -= 1
            self.last_s = time.monotonic()

    async def _record(self, entry: Any, work: Awaitable[T]) -> T:
        try:
            told = await work
        except BaseException as error:
            self.recorder.fail(entry, error)
            raise
        self.recorder.end(entry, told)
        return told
