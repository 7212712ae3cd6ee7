"""Resume from a trace: a run that was cut off is started again from its file. What was answered is
taken from there, tools that have run are not run again, and the rest is asked anew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import treadle as tr
from treadle.lang.examples.command import show
from treadle.lang.examples.react import calculator as evaluate


@tr.function
def errands(s: tr.State, tools: tr.Tools, questions: tuple[str, ...]) -> list[str]:
    s += tr.system("You are a helpful assistant.")
    answers = []
    for index, question in enumerate(questions):
        s += tr.user(question)
        s += tr.agent(f"answer{index}", tools=tools, max_turns=3)
        answers.append(s[f"answer{index}"])
    return answers


def main() -> tuple[list[str], list[str], int]:
    """The answers, the expressions in the order of their evaluation, and how many requests of the
    second run were answered by the first."""
    evaluated: list[str] = []

    def calculator(expression: str) -> str:
        """Evaluate an arithmetic expression."""
        evaluated.append(expression)
        return evaluate(expression)

    questions = ("Please compute 12 * 34.", "Please compute 7 * 8.")
    tools = tr.Tools([calculator])
    with tempfile.TemporaryDirectory() as folder:
        first = errands.run(tools, questions[:1], temperature=0)  # as far as it came
        path = first.save_trace(Path(folder) / "run.json")
        second = errands.run(tools, questions, temperature=0, resume=path)
    recalled = sum(entry.is_recalled for entry in second.trace().entries)
    return second.ret_value, evaluated, recalled


if __name__ == "__main__":
    show(main)
