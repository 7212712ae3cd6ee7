"""Speculative branching: while a slow tool runs, the model already answers for each result that is
likely. The branch that guessed right is the answer; the others are cancelled on the server.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import treadle as tr
from treadle.lang.examples.command import show


@dataclass(frozen=True, slots=True)
class Outcome:
    """`was_guessed`: the answer was begun before the tool had ended."""

    answer: str
    was_guessed: bool
    num_cancelled: int


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression."""
    return expression  # only its description is used: the program runs the call itself


async def slow_product(left: int, right: int) -> str:
    await asyncio.sleep(0.2)
    return str(left * right)


@tr.function
async def speculate(s: tr.State, left: int, right: int, guesses: list[str]) -> Outcome:
    s += tr.system("You are a helpful assistant.")
    s += tr.user(f"Please compute {left} * {right}.")
    s += tr.assistant(tr.gen("call", tools=[calculator], tool_choice="required", max_tokens=64))
    await s.read("call")
    (call,) = s.tool_calls("call")
    pending = asyncio.ensure_future(slow_product(left, right))
    forks = s.fork(len(guesses))
    forks += [answer_to(call, guess) for guess in guesses]
    result = await pending
    if result in guesses:
        s = forks[guesses.index(result)]
    else:
        s += answer_to(call, result)
    losers = [fork for fork in forks if fork is not s]
    for loser in losers:
        loser.cancel()
    return Outcome(await s.read("answer"), result in guesses, len(losers))


def answer_to(call: tr.ToolCall, result: str) -> tr.Expr:
    answer = tr.assistant(tr.gen("answer", tools=[calculator], max_tokens=64))
    return tr.tool_result(call, result) + answer


def main() -> Outcome:
    found: Outcome = speculate.run(12, 34, ["408", "400"], temperature=0).ret_value
    return found


if __name__ == "__main__":
    show(main)
