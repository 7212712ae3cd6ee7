"""Scoring of prompt tokens as values: which rows are wanted of a step, and what they say.

Both are fields of messages (`StepPlan.scored`, `StepResult.scores`); they are apart from
`messages.py` because the API reads them too. Plain arrays: 100,000 numbers as JSON would cost.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from .arrays import floats, ids


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows of span number `span` from position `first` on, one per target: the logprob of
    `targets[i]`, the prompt token at `first + i + 1`, is read from row `first + i`. None of them is
    a replayed row (rules B26, B27).
    """

    span: int
    first: int
    targets: array[int]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Natural logs of the raw model softmax for consecutive prompt tokens.

    Shapes: n tokens, k best and c asked ids of each, row after row: `logprobs` and `ranks` (1 is
    the best token of the vocabulary) n; `top_ids` and `top_logprobs` n*k; `chosen` n*c.
    """

    logprobs: array[float] = field(default_factory=floats)
    ranks: array[int] = field(default_factory=ids)
    top_ids: array[int] = field(default_factory=ids)
    top_logprobs: array[float] = field(default_factory=floats)
    chosen: array[float] = field(default_factory=floats)
