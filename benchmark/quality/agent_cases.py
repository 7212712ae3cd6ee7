"""Agent task cases: one assistant turn each, asked of a running server and judged.

A case says which prefix of its prompt an earlier turn would have left in the cache. To have it
there, that prefix is sent first, in a cache scope of the case's own, so that cases do not share
prefixes. A tool-call case passes when exactly one call was made, of that name and with equal
arguments as JSON values; a text case when none was made and the stripped content is equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.serving.client import Json, int_list, post


@dataclass(frozen=True, slots=True)
class Outcome:
    """`prompt_tokens` as the server counts them; `cached` and `replayed` of them."""

    case: str
    kind: str
    passed: bool
    prompt_tokens: int
    cached: int
    replayed: int


@dataclass(frozen=True, slots=True)
class AgentCase:
    """`body`: the request in chat-completions form. `hit_tokens`: of the prompt, what was there
    before the newest turn."""

    id: str
    kind: str
    body: Json
    expect: dict[str, Any]
    prompt_tokens: int
    hit_tokens: int

    @classmethod
    def read(cls, line: str) -> AgentCase:
        found = json.loads(line)
        variables = {"thinking": found["thinking"], "reasoning_effort": found["reasoning_effort"]}
        body: Json = {
            "messages": found["messages"],
            "tools": found["tools"],
            "chat_template_kwargs": variables,
        }
        body["max_tokens"] = found["max_new_tokens"]
        sizes = (found["prompt_tokens"], found["hit_tokens"])
        return cls(found["id"], found["kind"], body, found["expect"], *sizes)


def read_cases(path: Path, count: int) -> list[AgentCase]:
    """The first `count` of the file; 0 for all."""
    cases = [AgentCase.read(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return cases[:count] if count else cases


def ask(port: int, case: AgentCase, *, is_primed: bool) -> Outcome:
    """One greedy turn. `is_primed`: its prefix is cached first. Raises RuntimeError for a refusal,
    or a prompt of another length than the case was made with."""
    scope: Json = {"cache_salt": case.id}
    if is_primed:
        prefix = prompt_ids(port, case)[: case.hit_tokens]
        sampling = {"max_new_tokens": 0}
        post(port, "/generate", {"input_ids": prefix, "sampling_params": sampling, **scope})
    body = {"model": "m", "temperature": 0, **case.body, **scope}
    answer: Any = post(port, "/v1/chat/completions", body)
    message, usage = answer["choices"][0]["message"], answer["usage"]
    _check_length(case, usage["prompt_tokens"])
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return Outcome(
        case.id,
        case.kind,
        passes(case.expect, message.get("content"), calls),
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["prompt_tokens_details"]["replayed_tokens"],
    )


def passes(expect: dict[str, Any], content: str | None, calls: list[dict[str, Any]]) -> bool:
    if expect["type"] == "tool_call":
        if len(calls) != 1 or calls[0]["name"] != expect["name"]:
            return False
        try:
            return bool(json.loads(calls[0]["arguments"]) == expect["arguments"])
        except json.JSONDecodeError:
            return False
    return not calls and (content or "").strip() == str(expect["equals"]).strip()


def prompt_ids(port: int, case: AgentCase) -> list[int]:
    """The prompt as the server encodes it. Raises RuntimeError when its length is another."""
    names = ("messages", "tools", "chat_template_kwargs")
    ids = int_list(post(port, "/tokenize", {name: case.body[name] for name in names})["tokens"])
    _check_length(case, len(ids))
    return ids


def _check_length(case: AgentCase, found: int) -> None:
    if found != case.prompt_tokens:
        raise RuntimeError(f"{case.id}: a prompt of {found} tokens, not {case.prompt_tokens}")
