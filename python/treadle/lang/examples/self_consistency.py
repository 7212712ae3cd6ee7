"""Self-consistency: several answers are drawn from one prompt, and the most frequent one wins."""

from __future__ import annotations

from collections import Counter

import treadle as tr
from treadle.lang.examples.command import show


@tr.function
def vote(s: tr.State, question: str, voters: int) -> tuple[str, int]:
    """The winner and its votes."""
    s += tr.user(question)
    with s.fork(voters) as forks:
        forks += lambda i: tr.assistant(tr.gen("answer", max_tokens=48, temperature=0.8, seed=i))
    ((winner, votes),) = Counter(s["answer"]).most_common(1)
    return winner, votes


def main() -> tuple[str, int]:
    found: tuple[str, int] = vote.run("Count the items: bricks, plums, onions, nails", 5).ret_value
    return found


if __name__ == "__main__":
    show(main)
