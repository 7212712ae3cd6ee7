"""Few-shot classification of many texts with `run_batch`. The examples are the same in all prompts,
so they are computed once. Scores are calibrated: a label that is likely for a text without content
is likely by habit, and that much is taken off.
"""

from __future__ import annotations

import treadle as tr
from treadle.lang.examples.command import show

EXAMPLES = """Text: The bright supply covers the budget twice.
Kind: prose
Text: for i in range(10): print(i)
Kind: code
Text: The market improves the report.
Kind: prose
Text: def f(x): return x + 1
Kind: code
"""
LABELS = [" prose", " code"]
EMPTY = ("N/A", "", "...")


@tr.function
def classify(s: tr.State, text: str) -> list[float]:
    """The mean log-probability of each label."""
    s += EXAMPLES + f"Text: {text}\nKind:" + tr.select("kind", LABELS)
    return list(s.get_meta_info("kind")["normalized_prompt_logprobs"])


def main(
    texts: tuple[str, ...] = (
        "import os, sys",
        "The council follows the window.",
        "return self.value",
        "A small village confirms the letter.",
    ),
) -> dict[str, str]:
    states = classify.run_batch([{"text": text} for text in (*EMPTY, *texts)])
    scores = [state.ret_value for state in states]
    habit = [sum(column) / len(EMPTY) for column in zip(*scores[: len(EMPTY)], strict=True)]
    found = {}
    for text, row in zip(texts, scores[len(EMPTY) :], strict=True):
        gains = [score - usual for score, usual in zip(row, habit, strict=True)]
        found[text] = LABELS[gains.index(max(gains))].strip()
    return found


if __name__ == "__main__":
    show(main)
