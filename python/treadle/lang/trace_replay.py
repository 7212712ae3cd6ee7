"""A recorded run asked again of another server: the same requests, in the same order of causes.

An entry is asked when everything that had ended before it, on its branch and those it was forked
from, has been answered again. Prompts are the recorded ones, so the runs can be compared whatever
the other server says; tools are not run, their results stand in the prompts. Times between requests
are kept by `pace`: 0 asks at once, 1 waits as long as the program did.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..client.errors import ClientError
from .backend import Answer, AnswerRequest, Backend, ScoreRequest, Session
from .prompt import ChatPrompt, TextPrompt
from .recorder import Entry, Recorder, Told
from .tools import ToolCall
from .trace import BranchSpan, Totals, Trace


@dataclass(frozen=True, slots=True)
class Comparison:
    """`num_same` of `num_outputs`: texts and calls that are equal; `num_failed` had an error."""

    num_outputs: int
    num_same: int
    num_failed: int
    before: Totals
    after: Totals
    seconds_before: float
    seconds_after: float


async def replay(trace: Trace, backend: Backend, *, pace: float = 0.0) -> Trace:
    """The run as the other server answers it. An error is that of its entry, and nothing waits for
    it in vain."""
    return await _Replay(trace, backend, pace).run()


class _Replay:
    def __init__(self, trace: Trace, backend: Backend, pace: float) -> None:
        self._trace = trace
        self._backend = backend
        self._pace = pace
        self._recorder = Recorder()
        self._spans = {span.id: span for span in trace.branches}
        self._ids = {span.id: uuid.uuid4().hex for span in trace.branches}
        self._done = [asyncio.Event() for _ in trace.entries]

    async def run(self) -> Trace:
        for span in self._trace.branches:
            self._recorder.branch(self._session(span.id))
        made = await asyncio.gather(*map(self._again, range(len(self._trace.entries))))
        return replace(
            self._trace,
            backend=self._backend.name,
            began_at=self._recorder.began_at,
            seconds=self._recorder.now(),
            branches=tuple(self._moved(span, made) for span in self._trace.branches),
            entries=tuple(made),
            error="",
        )

    def _moved(self, span: BranchSpan, made: Sequence[Entry]) -> BranchSpan:
        """A branch begins with its first entry now."""
        session = self._session(span.id)
        starts = [entry.start_s for entry in made if entry.branch == session.id]
        return BranchSpan(session.id, session.parent, min(starts, default=0.0))

    def _session(self, branch: str) -> Session:
        parent = self._spans[branch].parent if branch in self._spans else None
        return Session(self._ids.get(branch, branch), self._ids.get(parent or ""))

    async def _again(self, index: int) -> Entry:
        old = self._trace.entries[index]
        causes = self._causes(index)
        await asyncio.gather(*(self._done[i].wait() for i in causes))
        ends = [end for i in causes if (end := self._trace.entries[i].end_s) is not None]
        await asyncio.sleep(self._pace * max(0.0, old.start_s - max(ends, default=0.0)))
        session = self._session(old.branch)
        entry = Entry(old.kind, session.id, old.name, old.asked, self._recorder.now())
        try:
            self._recorder.end(entry, await self._ask(old, session))
        except ClientError as error:
            self._recorder.fail(entry, error)
        finally:
            self._done[index].set()
        return entry

    def _causes(self, index: int) -> list[int]:
        """Earlier entries of the branch and its ancestors that had ended when this one began; of
        those that took no time, as recalled ones, the clock alone does not tell which was first."""
        entry = self._trace.entries[index]
        chain: set[str] = set()
        branch: str | None = entry.branch
        while branch is not None and branch not in chain:
            chain.add(branch)
            branch = self._spans[branch].parent if branch in self._spans else None
        return [
            i
            for i, other in enumerate(self._trace.entries[:index])
            if other.branch in chain and other.end_s is not None and other.end_s <= entry.start_s
        ]

    async def _ask(self, old: Entry, session: Session) -> Told:
        asked = old.asked
        if isinstance(asked, AnswerRequest):
            return await self._backend.answer(asked, session)
        if isinstance(asked, ScoreRequest):
            return await self._backend.score(asked, session)
        if isinstance(asked, TextPrompt | ChatPrompt):
            return await self._backend.commit(asked, session)
        await asyncio.sleep(self._pace * ((old.end_s or old.start_s) - old.start_s))
        return old.told if old.told is not None else {}


def compare(before: Trace, after: Trace) -> Comparison:
    """Of a trace and its replay."""
    outputs = [
        (old.told, new.told)
        for old, new in zip(before.entries, after.entries, strict=True)
        if old.kind == "generate" and old.told is not None
    ]
    return Comparison(
        num_outputs=len(outputs),
        num_same=sum(_said(old) == _said(new) for old, new in outputs),
        num_failed=sum(bool(entry.error) for entry in after.entries),
        before=before.totals(),
        after=after.totals(),
        seconds_before=before.seconds,
        seconds_after=after.seconds,
    )


def _said(told: Any) -> list[tuple[str, list[tuple[str, str]]]] | None:
    """Texts and calls, without the ids that servers give to calls."""
    if told is None or isinstance(told, Mapping | ToolCall):
        return None
    answers: Sequence[Answer] = told
    return [(a.text, [(call.name, call.arguments) for call in a.calls]) for a in answers]
