"""Agent tasks solved by programs of the language, against the same loop on the bare chat API.

    python -m benchmark.quality.agent_programs [--cases N] [--concurrency 8] [--out agent_programs]

The calculator, lookup and multi-hop cases of `test/evals/agent_tasks.jsonl`, greedily, on one
server. Each is run twice on both sides: one turn from where the case stands, judged as its author
wrote it; and the whole task from the user's question, with real Python tools, judged by its end.
The two sides must agree within two standard errors of their difference.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.environment import ROOT, Environment, describe_file, write_result
from benchmark.quality.agent_cases import AgentCase, passes, read_cases
from benchmark.quality.agent_tools import KINDS, Workshop, is_solved, task_messages
from benchmark.serving.client import Json, post
from benchmark.serving.servers import Server, stop_servers_on_term, treadle_spec

import treadle as tr

PACKAGES = ("torch", "aiohttp")
EVALS = ROOT / "test" / "evals" / "agent_tasks.jsonl"
MODEL = ROOT / "test" / "checkpoints" / "v41-mini"
MAX_TURNS = 6
TASK_TOKENS = 256  # of each turn; a case's own limit is for its one turn
Solve = Callable[[AgentCase], bool]


@dataclass(frozen=True, slots=True)
class Share:
    """`standard_error` of the accuracy over cases."""

    passed: int
    cases: int
    accuracy: float
    standard_error: float
    failed: list[str]
    seconds: float

    @classmethod
    def of(cls, cases: Sequence[AgentCase], found: Sequence[bool], seconds: float) -> Share:
        share = sum(found) / len(found)
        return cls(
            sum(found),
            len(found),
            round(share, 4),
            round(math.sqrt(share * (1 - share) / len(found)), 4),
            [case.id for case, good in zip(cases, found, strict=True) if not good],
            round(seconds, 1),
        )


@tr.function
def from_here(s: tr.State, case: AgentCase) -> None:
    """Whatever the case says, as the chat API would be asked; one turn is all it gets."""
    s += tr.history(case.body["messages"])
    limit = int(case.body["max_tokens"])
    s += tr.agent("answer", Workshop.of(case).tools(case), max_turns=1, max_tokens=limit)


@tr.function
def from_the_question(s: tr.State, case: AgentCase, shop: Workshop) -> None:
    s += tr.history(task_messages(case))
    s += tr.agent("answer", shop.tools(case), max_turns=MAX_TURNS, max_tokens=TASK_TOKENS)


def program_turn(case: AgentCase) -> bool:
    state = from_here.run(case, **_options(case))
    error = state.error()
    if error is not None and not isinstance(error, tr.BudgetExceeded):
        raise error
    first = state.messages()[len(case.body["messages"])]
    calls = [call["function"] for call in first.get("tool_calls") or ()]
    return passes(case.expect, first["content"], calls)


def program_task(case: AgentCase) -> bool:
    shop = Workshop.of(case)
    state = from_the_question.run(case, shop, **_options(case))
    return state.error() is None and is_solved(case, shop, state["answer"])


def _options(case: AgentCase) -> dict[str, Any]:
    return {"temperature": 0, "chat_template_kwargs": case.body["chat_template_kwargs"]}


def chat_turn(port: int, case: AgentCase) -> bool:
    message = _ask(port, case, case.body["messages"], int(case.body["max_tokens"]))
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return passes(case.expect, message.get("content"), calls)


def chat_task(port: int, case: AgentCase) -> bool:
    """The loop without the language."""
    shop, messages = Workshop.of(case), task_messages(case)
    tools = shop.tools(case)
    known = {tool.name: tool for tool in tools}
    for _ in range(MAX_TURNS):
        message = _ask(port, case, messages, TASK_TOKENS)
        if not message.get("tool_calls"):
            return is_solved(case, shop, message.get("content") or "")
        calls = [tr.ToolCall(each["id"], **each["function"]) for each in message["tool_calls"]]
        kept = {name: value for name, value in message.items() if value is not None}
        messages.append({**kept, "tool_calls": [call.message_part() for call in calls]})
        for call in calls:
            try:
                arguments = known[call.name].read_arguments(call.arguments)
                result = shop.run(call.name, arguments)
            except (ValueError, KeyError) as error:
                result = f"error: {error}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return False


def _ask(port: int, case: AgentCase, messages: Sequence[Json], max_tokens: int) -> Any:
    body = {"model": "m", "temperature": 0, **case.body, "messages": list(messages)}
    body["max_tokens"] = max_tokens
    answer: Any = post(port, "/v1/chat/completions", body)
    return answer["choices"][0]["message"]


def main() -> None:
    args = _arguments()
    stop_servers_on_term()
    environment = Environment.read(PACKAGES)
    cases = [case for case in read_cases(args.evals, 0) if case.kind in KINDS]
    cases = cases[: args.cases] if args.cases else cases
    flags = ("--max-running-requests", str(args.concurrency), "--kv-cache-memory", "512M")
    command = f"{sys.executable} -m treadle.launch_server"
    with Server(treadle_spec(command, args.model, args.threads, flags)) as server:
        server.wait_until_ready()
        endpoint = tr.RuntimeEndpoint(f"http://127.0.0.1:{server.port}")
        tr.set_default_backend(endpoint)
        sides: dict[str, Solve] = {
            "chat_turn": lambda case: chat_turn(server.port, case),
            "program_turn": program_turn,
            "chat_task": lambda case: chat_task(server.port, case),
            "program_task": program_task,
        }
        shares = {name: _all(cases, solve, args.concurrency) for name, solve in sides.items()}
        endpoint.close()
    gaps = {kind: _gap(shares[f"chat_{kind}"], shares[f"program_{kind}"]) for kind in _KINDS}
    for name, share in shares.items():
        print(f"{name:14} {share.passed}/{share.cases} {share.accuracy:.1%}", *share.failed)
    if args.out:
        settings = {
            "model": describe_file(args.model), "evals": describe_file(args.evals),
            "kinds": KINDS, "cases": len(cases), "concurrency": args.concurrency,
            "threads": args.threads, "max_turns": MAX_TURNS, "task_tokens": TASK_TOKENS,
        }  # fmt: skip
        content = {"environment": environment, "settings": settings, "sides": shares, "gaps": gaps}
        print(write_result(args.out, content))
    if any(abs(gap["difference"]) > gap["allowed"] for gap in gaps.values()):
        sys.exit("the sides differ by more than two standard errors")


_KINDS = ("turn", "task")


def _all(cases: Sequence[AgentCase], solve: Solve, concurrency: int) -> Share:
    began = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as threads:
        found = list(threads.map(solve, cases))
    return Share.of(cases, found, time.perf_counter() - began)


def _gap(chat: Share, program: Share) -> dict[str, float]:
    """`allowed`: two standard errors of the difference."""
    error = math.hypot(chat.standard_error, program.standard_error)
    difference = program.accuracy - chat.accuracy
    return {"difference": round(difference, 4), "allowed": round(2 * error, 4)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--evals", type=Path, default=EVALS)
    parser.add_argument("--cases", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default="", help="name in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
