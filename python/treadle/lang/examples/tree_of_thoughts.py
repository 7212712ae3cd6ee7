"""Tree of thoughts: at each level several continuations are drawn from the best state so far, and
the one of which the model itself is surest is kept. Branches share their prefix in the cache.
"""

from __future__ import annotations

import treadle as tr
from treadle.lang.examples.command import show

LINKS = """Links:
torch -> 97223
hill_willow -> bamboo
mesa_violet -> 9a73da50
bamboo -> mesa_violet"""


@tr.function
def think(s: tr.State, questions: list[str], width: int) -> list[str]:
    """One thought per question; what was kept is read by the next one."""
    kept = []
    best = s
    for question in questions:
        best += tr.user(question)
        forks = best.fork(width)
        forks += lambda i: tr.assistant(
            tr.gen("thought", max_tokens=48, return_logprob=True, temperature=0.7, seed=i)
        )
        best = max(forks, key=certainty)
        kept.append(best["thought"])
    return kept


def certainty(state: tr.State) -> float:
    """Mean log-probability of the thought's tokens, its reasoning included."""
    found = state.get_meta_info("thought")["output_token_logprobs"]
    logprobs: list[float] = [logprob for logprob, _, _ in found]
    return sum(logprobs) / len(logprobs)


def main() -> list[str]:
    questions = [
        f"{LINKS}\n\nStart at hill_willow and follow 3 links. What do you reach?",
        f"{LINKS}\n\nStart at bamboo and follow 2 links. What do you reach?",
    ]
    kept: list[str] = think.run(questions, 2).ret_value
    return kept


if __name__ == "__main__":
    show(main)
