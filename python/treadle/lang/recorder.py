"""What one run did, in order of its beginnings: requests and tool calls with their times.

Kept for every run, as references to values that exist anyway; `trace.py` makes a file of it. Times
are seconds since the run began.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..client.errors import describe
from .backend import Answer, AnswerRequest, ScoreRequest, Scores, Session
from .prompt import Prompt
from .tools import ToolCall, ToolResult

Asked = AnswerRequest | ScoreRequest | Prompt | ToolCall
Told = Sequence[Answer] | Scores | dict[str, Any] | ToolResult


@dataclass(slots=True, eq=False)
class Entry:
    """`kind` is generate, select, commit or tool. `told` None: it has not ended, or `error` says
    how it did. `is_recalled`: the answer is that of an earlier run."""

    kind: str
    branch: str
    name: str | None
    asked: Asked
    start_s: float
    end_s: float | None = None
    told: Told | None = None
    error: str = ""
    is_recalled: bool = False


@dataclass(slots=True, eq=False)
class Recorder:
    began_at: float = field(default_factory=time.time)
    branches: list[tuple[Session, float]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    ended_s: float | None = None
    _zero: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        return time.monotonic() - self._zero

    def branch(self, session: Session) -> None:
        self.branches.append((session, self.now()))

    def begin(self, kind: str, branch: str, name: str | None, asked: Asked) -> Entry:
        entry = Entry(kind, branch, name, asked, self.now())
        self.entries.append(entry)
        return entry

    def end(self, entry: Entry, told: Told) -> None:
        entry.told, entry.end_s = told, self.now()

    def fail(self, entry: Entry, error: BaseException) -> None:
        entry.error, entry.end_s = describe(error), self.now()
