"""Which of several choices a model prefers, from the log-probabilities of their tokens. Pure.

A score holds the tokens by which a choice differs from the prompt, in order. All scores of a
selection begin at the same position of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..client.errors import ProgramError


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """`unconditional`: of the same tokens without the prompt, None for the first; empty where the
    method does not ask for it. `texts`: of the tokens, where the server tells these instead of
    ids; then `token_ids` only say which tokens of a selection are the same.

    >>> tr.ChoiceScore((7, 9), (-1.0, -2.0)).mean
    -1.5
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    unconditional: tuple[float | None, ...] = ()
    texts: tuple[str, ...] = ()

    def triples(self) -> list[list[object]]:
        """As /generate spells them: log-probability, id, text; one of the two is None."""
        if self.texts:
            shown = zip(self.logprobs, self.texts, strict=True)
            return [[logprob, None, text] for logprob, text in shown]
        pairs = zip(self.logprobs, self.token_ids, strict=True)
        return [[logprob, token, None] for logprob, token in pairs]

    @property
    def mean(self) -> float:
        return sum(self.logprobs) / len(self.logprobs)


@dataclass(frozen=True, slots=True)
class ChoicesMethod:
    """A rule of selection.

    >>> tr.token_length_normalized.name
    'token_length_normalized'
    """

    name: str
    pick: Callable[[Sequence[ChoiceScore]], int]
    needs_unconditional: bool = False


def _best(values: Sequence[float]) -> int:
    """The first of the greatest."""
    return max(range(len(values)), key=lambda i: (values[i], -i))


def pick_token_length_normalized(scores: Sequence[ChoiceScore]) -> int:
    """The greatest mean log-probability per token."""
    return _best([score.mean for score in scores])


def pick_greedy(scores: Sequence[ChoiceScore]) -> int:
    """The choice that greedy decoding among the choices would take, token by token; one that has
    ended goes on with its mean."""
    left = list(range(len(scores)))
    for position in range(max(len(score.token_ids) for score in scores)):
        values = [_at(scores[i], position) for i in left]
        best = left[_best(values)]
        left = [i for i in left if _same(scores, i, best, position)]
        if len(left) == 1:
            break
    return left[0]


def _at(score: ChoiceScore, position: int) -> float:
    return score.logprobs[position] if position < len(score.logprobs) else score.mean


def _same(scores: Sequence[ChoiceScore], one: int, best: int, position: int) -> bool:
    """Both have the same token there: their values are equal up to rounding."""
    if one == best:
        return True
    first, second = scores[one].token_ids, scores[best].token_ids
    if position >= min(len(first), len(second)):
        return False
    return first[position] == second[position]


def pick_unconditional(scores: Sequence[ChoiceScore]) -> int:
    """The greatest mean gain of a token's log-probability over that without the prompt."""
    return _best([_gain(score) for score in scores])


def _gain(score: ChoiceScore) -> float:
    pairs = zip(score.logprobs, score.unconditional, strict=True)
    return sum(own - (alone or 0.0) for own, alone in pairs) / len(score.logprobs)


token_length_normalized = ChoicesMethod("token_length_normalized", pick_token_length_normalized)
greedy_token_selection = ChoicesMethod("greedy_token_selection", pick_greedy)
unconditional_likelihood_normalized = ChoicesMethod(
    "unconditional_likelihood_normalized", pick_unconditional, needs_unconditional=True
)
METHODS = {
    method.name: method
    for method in (
        token_length_normalized,
        greedy_token_selection,
        unconditional_likelihood_normalized,
    )
}


def choices_method(given: str | ChoicesMethod | None) -> ChoicesMethod:
    """Raises ProgramError for an unknown name."""
    if given is None:
        return token_length_normalized
    if isinstance(given, ChoicesMethod):
        return given
    if given not in METHODS:
        raise ProgramError(f"choices_method must be one of {', '.join(METHODS)}, got {given!r}")
    return METHODS[given]
