"""A judge: candidates are scored as the answer to the question, and the likeliest is chosen. What
is likely in any context counts less (`unconditional_likelihood_normalized`).
"""

from __future__ import annotations

import treadle as tr
from treadle.lang.examples.command import show
from treadle.lang.examples.extraction import NOTES


@tr.function
def judge(s: tr.State, question: str, candidates: list[str]) -> tuple[str, list[float]]:
    """The chosen candidate, and the mean log-probability of each."""
    s += tr.user(question)
    s += tr.assistant(
        tr.select("best", candidates, choices_method=tr.unconditional_likelihood_normalized)
    )
    return s["best"], s.get_meta_info("best")["normalized_prompt_logprobs"]


def main() -> str:
    question = f"{NOTES}\n\nLook up lunar_lichen."
    chosen, _ = judge.run(question, ["Nina Zinc", "b0c10b81", "b0c10b80"]).ret_value
    return str(chosen)


if __name__ == "__main__":
    show(main)
