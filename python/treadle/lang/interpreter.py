"""Runs expressions on a branch: texts go to the transcript, generations to the backend and their
values to cells. One node after another; what runs in parallel are branches and an agent's tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..client.errors import ProgramError
from .agent import AgentLoop
from .asker import Asker
from .backend import Answer, AnswerRequest, Delta, OnDelta, ScoreRequest
from .cells import Cell
from .events import EventLog, ReasoningEvent, TextEvent
from .ir import (
    REASONING,
    Agent,
    Chain,
    Expr,
    Gen,
    History,
    RoleBegin,
    RoleEnd,
    ScopeBegin,
    ScopeEnd,
    Select,
    Separate,
    Text,
    ToolMessage,
)
from .prompt import Prompt, TextPrompt, Transcript
from .run import Run

PROBES = ("0", "A")  # two answers that share no first token


@dataclass(slots=True, eq=False)
class Interpreter:
    """For one expression of a branch; `cells` are those of its variables."""

    run: Run
    asker: Asker
    transcript: Transcript
    log: EventLog
    cells: Mapping[str, Cell]
    _splits: bool = False
    _parser: str | None = None

    async def evaluate(self, expr: Expr) -> None:
        """Raises ClientErrors."""
        handler = _HANDLERS.get(type(expr))
        if handler is None:
            raise ProgramError(f"{type(expr).__name__} is not an expression of a program")
        await handler(self, expr)

    async def text(self, node: Text) -> None:
        self.transcript.append(node.text)
        self.show(node.text)

    async def chain(self, node: Chain) -> None:
        for part in node.parts:
            await self.evaluate(part)

    async def role_begin(self, node: RoleBegin) -> None:
        self.show(self.transcript.begin(node.role))

    async def role_end(self, node: RoleEnd) -> None:
        self.show(self.transcript.end(node.role))

    async def scope_begin(self, node: ScopeBegin) -> None:
        self.transcript.begin_scope(node.name)

    async def scope_end(self, node: ScopeEnd) -> None:
        self.fill(node.name, self.transcript.end_scope(node.name))

    async def tool_message(self, node: ToolMessage) -> None:
        message = {"role": "tool", "tool_call_id": node.call_id, "content": node.content}
        self.show(self.transcript.show_message(message))

    async def history(self, node: History) -> None:
        for message in node.messages:
            self.show(self.transcript.show_message(message))

    async def separate(self, node: Separate) -> None:
        splits, parser = self._splits, self._parser
        self._splits, self._parser = True, node.parser
        await self.evaluate(node.inner)
        self._splits, self._parser = splits, parser

    async def agent(self, node: Agent) -> None:
        loop = AgentLoop(self.run, self.asker, self.transcript, self.log, node)
        value, meta = await loop.play()
        self.fill(node.name, value, meta, meta["reasoning"])

    async def gen(self, node: Gen) -> None:
        tools = tuple(node.tools.specs()) if node.tools is not None else ()
        if tools and not self.transcript.is_chat:
            raise ProgramError("tools need a chat: put the generation into role assistant")
        prompt = self.transcript.prompt(tools)
        await self.run.pass_gate(prompt, self.asker)
        sampling = node.sampling.over(self.run.sampling)
        logprobs = node.logprobs or self.run.logprobs
        request = AnswerRequest(prompt, sampling, logprobs, node.tool_choice)
        answers = await self.asker.answer(request, node.name, self.on_delta(node.name))
        self.transcript.take(answers[0].text, answers[0].reasoning, answers[0].calls)
        if self._splits and isinstance(prompt, TextPrompt):
            answers = await self._split(answers)
        first = answers[0]
        metas = [_meta(answer) for answer in answers]
        if sampling.num_outputs == 1:
            self.fill(node.name, first.text, metas[0], first.reasoning)
        else:
            texts = [answer.text for answer in answers]
            self.fill(node.name, texts, metas, [answer.reasoning for answer in answers])

    async def _split(self, answers: Sequence[Answer]) -> list[Answer]:
        split = self.run.backend.split_reasoning
        pairs = await asyncio.gather(*(split(each.text, self._parser) for each in answers))
        return [
            replace(each, text=text, reasoning=reasoning)
            for each, (reasoning, text) in zip(answers, pairs, strict=True)
        ]

    async def select(self, node: Select) -> None:
        prompt = self.transcript.prompt()
        await self.run.pass_gate(prompt, self.asker)
        bases, prompts = self._continued(prompt, node.choices)
        request = ScoreRequest(bases, prompts, node.method.needs_unconditional)
        scores = await self.asker.score(request, node.name)
        best = node.method.pick(scores.choices)
        chosen = node.choices[best]
        self.transcript.append(chosen)
        self.show(chosen, node.name)
        meta = {
            **scores.meta,
            "normalized_prompt_logprobs": [score.mean for score in scores.choices],
            "input_token_logprobs": [score.triples() for score in scores.choices],
            "chosen": best,
        }
        self.fill(node.name, chosen, meta)

    def _continued(
        self, prompt: Prompt, choices: Sequence[str]
    ) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
        """What is common to all, and the prompt with each choice. An answer of a chat that has not
        begun cannot be empty, so two different ones stand for it."""
        if isinstance(prompt, TextPrompt):
            return (prompt,), tuple(TextPrompt(prompt.text + choice) for choice in choices)
        answering = self.transcript.answering
        prompts = tuple(answering(choice) for choice in choices)
        if prompt.end == "inside":
            return (prompt,), prompts
        return tuple(answering(probe) for probe in PROBES), prompts

    def on_delta(self, name: str | None) -> OnDelta | None:
        """None when nobody watches, so nothing is streamed."""
        if not self.run.is_streaming:
            return None

        def tell(delta: Delta) -> None:
            if delta.reasoning:
                self.log.add(ReasoningEvent(delta.reasoning, name))
            if delta.text:
                self.log.add(TextEvent(delta.text, name))

        return tell

    def show(self, text: str, name: str | None = None) -> None:
        if text:
            self.log.add(TextEvent(text, name))

    def fill(self, name: str | None, value: Any, meta: Any = None, reasoning: Any = None) -> None:
        if name is None:
            return
        if self._splits and name + REASONING in self.cells:
            self.cells[name + REASONING].fill(reasoning)
        self.cells[name].fill(value, meta)
        self.log.wake()


def _meta(answer: Answer) -> dict[str, Any]:
    return {**answer.meta, "reasoning": answer.reasoning, "tool_calls": list(answer.calls)}


Handler = Callable[[Interpreter, Any], Awaitable[None]]
_HANDLERS: dict[type[Expr], Handler] = {
    Text: Interpreter.text,
    Chain: Interpreter.chain,
    Gen: Interpreter.gen,
    Select: Interpreter.select,
    RoleBegin: Interpreter.role_begin,
    RoleEnd: Interpreter.role_end,
    ScopeBegin: Interpreter.scope_begin,
    ScopeEnd: Interpreter.scope_end,
    Separate: Interpreter.separate,
    ToolMessage: Interpreter.tool_message,
    History: Interpreter.history,
    Agent: Interpreter.agent,
}
