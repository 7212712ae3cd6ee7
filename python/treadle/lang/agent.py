"""The agent loop: model turn -> tool calls -> results -> ..., until an answer without calls.

    messages --answer--> calls? --no--> final answer --(schema?)--> the same turn once more, in form
        ^                 | yes
        +---- results <---+  all calls of a turn at once, each with its own time limit

A turn with a grammar can hold no calls, so a structured answer is made in two steps: the loop ends
as always, then its last turn is generated again without tools and in the asked form.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..client.errors import BrokenAnswer, BudgetExceeded, ProgramError, Unsupported
from .asker import Asker
from .backend import Answer, AnswerRequest, Delta
from .events import CallEvent, Event, EventLog, ReasoningEvent, ResultEvent, TextEvent, TurnEvent
from .ir import Agent
from .prompt import ChatPrompt, Transcript
from .run import Run
from .sampling import Sampling, schema_text
from .schema import Mismatch, read, schema_of
from .threads import in_daemon_thread
from .tools import ToolCall, ToolResult, as_result, on_loop

Json = dict[str, Any]

SUMMED = ("prompt_tokens", "completion_tokens", "cached_tokens", "replayed_tokens")


@dataclass(slots=True, eq=False)
class AgentLoop:
    run: Run
    asker: Asker
    transcript: Transcript
    log: EventLog
    node: Agent
    num_calls: int = 0
    _metas: list[Json] = field(default_factory=list)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def play(self) -> tuple[Any, Json]:
        """The final answer, and what it took. Raises BudgetExceeded and other ClientErrors."""
        specs = tuple(self.node.tools.specs())
        turn = 0
        while True:
            turn += 1
            prompt = self.transcript.agent_prompt(specs)
            await self.run.pass_gate(prompt, self.asker)
            answer = await self._turn(prompt, self._left(self._sampling()), None)
            if not answer.calls:
                return await self._final(prompt, answer, turn)
            self._add(_message(answer))
            self._tell(TurnEvent(turn, False, self.node.name))
            self._check_goes_on(turn)
            for message in await self._results(answer.calls):
                self._add(message)

    def _check_goes_on(self, turn: int) -> None:
        """Before tools are run: what they do would be done for no turn to see. Raises
        BudgetExceeded."""
        most = self.node.budget.max_turns
        if turn == most:
            raise BudgetExceeded(f"no final answer after {most} turns (max_turns)")
        self._left(self._sampling())

    async def _turn(
        self, prompt: ChatPrompt, sampling: Sampling, tool_choice: str | None
    ) -> Answer:
        """Raises BudgetExceeded for an answer that the budget has cut off."""
        request = AnswerRequest(prompt, sampling, None, tool_choice)
        on_delta = self._on_delta if self.run.is_streaming else None
        (answer,) = await self.asker.answer(request, self.node.name, on_delta)
        self._metas.append(answer.meta)
        own = self._sampling().max_new_tokens
        if _finish(answer) == "length" and sampling.max_new_tokens != own:
            self._add(_message(answer))
            raise self._spent()
        return answer

    def _sampling(self) -> Sampling:
        """Of the run, but turns are as long as they need to be unless the agent says otherwise."""
        if self.run.sampling.num_outputs > 1:
            raise ProgramError(f"an agent has one answer, the run asks for n={self.run.sampling.n}")
        defaults = replace(self.run.sampling, max_new_tokens=None, stop=None)
        return self.node.sampling.over(defaults)

    def _left(self, sampling: Sampling) -> Sampling:
        """Cut to what the budget has left. Raises BudgetExceeded."""
        total = self.node.budget.max_total_tokens
        if total is None:
            return sampling
        counts: list[int | None] = [meta.get("completion_tokens") for meta in self._metas]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            raise Unsupported(
                f"{self.run.backend.name}: max_total_tokens needs a server that tells how many "
                "tokens it generated (usage.completion_tokens)"
            )
        left = total - sum(known)
        if left <= 0:
            raise self._spent()
        own = sampling.max_new_tokens
        return replace(sampling, max_new_tokens=left if own is None else min(own, left))

    def _spent(self) -> BudgetExceeded:
        total = self.node.budget.max_total_tokens
        return BudgetExceeded(f"no final answer within {total} tokens (max_total_tokens)")

    async def _final(self, prompt: ChatPrompt, answer: Answer, turn: int) -> tuple[Any, Json]:
        wanted = self.node.answer
        value: Any = answer.text
        if wanted is not None:
            schema = dict(wanted) if isinstance(wanted, Mapping) else schema_of(wanted)
            formed = replace(self._left(self._sampling()), json_schema=schema_text(schema))
            answer = await self._turn(prompt, formed, "none" if prompt.tools else None)
            value = _formed(wanted, answer)
        self._add(_message(answer))
        self._tell(TurnEvent(turn, True, self.node.name))
        return value, self._meta(answer, turn)

    def _meta(self, answer: Answer, turn: int) -> Json:
        """Sums over all turns, and the last turn's own facts."""
        sums = {key: sum(meta.get(key) or 0 for meta in self._metas) for key in SUMMED}
        return {
            **answer.meta,
            **sums,
            "turns": turn,
            "num_tool_calls": self.num_calls,
            "reasoning": answer.reasoning,
            "per_turn": list(self._metas),
        }

    def _add(self, message: Json) -> None:
        shown = self.transcript.show_message(message)
        if message["role"] == "tool":
            self._tell(TextEvent(shown))

    async def _results(self, calls: Sequence[ToolCall]) -> list[Json]:
        """All at once, in the order of the calls."""
        self.num_calls += len(calls)
        tasks = [asyncio.ensure_future(self._result(call)) for call in calls]
        try:
            results = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return [
            {"role": "tool", "tool_call_id": call.id, "content": result.content}
            for call, result in zip(calls, results, strict=True)
        ]

    async def _result(self, call: ToolCall) -> ToolResult:
        began = time.monotonic()
        self._tell(CallEvent(call, self.node.name))
        result = await self.asker.tool(call, self.node.name, self._run_tool)
        seconds = time.monotonic() - began
        self._tell(ResultEvent(call, result, seconds, self.node.name))
        return result

    async def _run_tool(self, call: ToolCall) -> ToolResult:
        """Unless `on_tool` has a result for it."""
        if self.node.on_tool is not None:
            instead = await self._ask(self.node.on_tool, call)
            if instead is not None:
                return instead if isinstance(instead, ToolResult) else as_result(instead)
        return await self.node.tools.run(call, self.run.home)

    async def _ask(self, on_tool: Callable[..., object], call: ToolCall) -> object:
        """A plain function may wait for a person: beside the loop, one call after another, and for
        as long as it takes."""
        if inspect.iscoroutinefunction(on_tool):
            return await on_loop(on_tool(call), self.run.home)
        async with self._asking:
            said = await in_daemon_thread(functools.partial(on_tool, call))
        return await on_loop(said, self.run.home) if inspect.isawaitable(said) else said

    def _on_delta(self, delta: Delta) -> None:
        if delta.reasoning:
            self._tell(ReasoningEvent(delta.reasoning, self.node.name))
        if delta.text:
            self._tell(TextEvent(delta.text, self.node.name))

    def _tell(self, event: Event) -> None:
        self.log.add(event)


def _finish(answer: Answer) -> str | None:
    kind: str | None = (answer.meta.get("finish_reason") or {}).get("type")
    return kind


def _message(answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": answer.text}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [call.message_part() for call in answer.calls]
    return message


def _formed(wanted: Any, answer: Answer) -> Any:
    """The decoded answer, as the dataclass if one was wanted. Raises BrokenAnswer, ProgramError."""
    try:
        value = json.loads(answer.text)
    except (ValueError, RecursionError):
        raise BrokenAnswer(
            f"the final answer is not whole JSON (finish {_finish(answer)})"
        ) from None
    if isinstance(wanted, Mapping):
        return value
    try:
        return read(wanted, value, "answer")
    except (Mismatch, RecursionError) as error:
        name = getattr(wanted, "__name__", wanted)
        raise ProgramError(f"the final answer does not fit {name}: {error}") from None
