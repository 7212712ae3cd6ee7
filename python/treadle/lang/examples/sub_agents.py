"""Parallel sub-agents: each works on its part in a session of its own, begun from the parent's
prefix; the parent reads their answers and goes on.
"""

from __future__ import annotations

import treadle as tr
from treadle.lang.examples.command import show
from treadle.lang.examples.react import calculator


@tr.function
async def delegate(s: tr.State, questions: list[str]) -> str:
    s += tr.system("You are a careful assistant. Use the tools when they help.")
    forks = s.fork(len(questions))
    forks += [tr.user(question) + agent() for question in questions]
    answers = [await fork.read("answer") for fork in forks]
    numbers = [answer.split()[-1].rstrip(".") for answer in answers]
    s += tr.user(f"How much is {' + '.join(numbers)}?")
    s += agent()
    return str(await s.read("answer"))


def agent() -> tr.Expr:
    return tr.agent("answer", tools=[calculator], max_turns=3, temperature=0)


def main() -> str:
    state = delegate.run(["Please compute 12 * 3.", "Please compute 8 * 5."])
    return str(state.ret_value)


if __name__ == "__main__":
    show(main)
