"""Draws: what the host knows of the sampled rows of one step, laid out for the device. Pure numpy.

Rows are grouped by what must be done to them, so that a step of greedy requests does nothing else
than take the best ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..token_masks import TokenMask
from .state import SamplerSlot
from .verify import uniform

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Draws:
    """Row numbers are int64 arrays; [n] are of all rows."""

    slots: Int64  # [n]
    temperature: Float64  # [n]
    uniform: Float64  # [n]
    top_k: Int64  # [n] at most the vocabulary
    top_p: Float64  # [n]
    min_p: Float64  # [n]
    free: Int64  # rows drawn from the whole vocabulary
    filtered: Int64  # rows drawn under top-k, top-p or min-p
    penalised: Int64  # rows with penalties, of `params`
    repetition: Float64
    frequency: Float64
    presence: Float64
    bias_rows: Int64
    bias_ids: Int64
    bias_values: Float64
    ban_rows: Int64  # stops that come too early
    ban_ids: Int64
    masked: Int64  # rows with a grammar
    words: Int64  # [len(masked), words of 64 bits]

    @property
    def is_adjusting(self) -> bool:
        sizes = self.penalised.size, self.bias_rows.size, self.ban_rows.size, self.masked.size
        return any(sizes)

    @property
    def is_plain(self) -> bool:
        """Every row takes its best id."""
        return not (self.free.size or self.filtered.size or self.is_adjusting)

    def numbers(self, rows: Int64) -> list[Int64 | Float64]:
        """Temperature, u, top-k, top-p and min-p of some rows."""
        return [
            self.temperature[rows],
            self.uniform[rows],
            self.top_k[rows],
            self.top_p[rows],
            self.min_p[rows],
        ]

    def penalties(self) -> list[Float64]:
        """Repetition, frequency and presence penalty of the rows that have some."""
        rows = self.penalised
        return [self.repetition[rows], self.frequency[rows], self.presence[rows]]


def lay_out(
    slots: Sequence[int],
    states: Sequence[SamplerSlot],
    masks: Sequence[TokenMask],
    vocab_size: int,
) -> Draws:
    """`states` of the sampled rows; `masks` of the step's plan."""
    params = [state.params for state in states]
    greedy = np.array([p.is_greedy for p in params], dtype=bool)
    top_k = _ints([vocab_size if p.top_k == -1 else p.top_k for p in params])
    top_p, min_p = _floats([p.top_p for p in params]), _floats([p.min_p for p in params])
    filters = (top_k < vocab_size) | (top_p < 1.0) | (min_p != 0.0)
    bias = [(i, *pair) for i, p in enumerate(params) for pair in p.logit_bias]
    bans = [(i, stop) for i, state in enumerate(states) for stop in _banned(state)]
    by_slot = {mask.slot: mask for mask in masks}
    masked = [i for i, slot in enumerate(slots) if slot in by_slot]
    return Draws(
        slots=_ints(slots),
        temperature=np.where(greedy, 1.0, _floats([p.temperature for p in params])),
        uniform=_floats([_number(state) for state in states]),
        top_k=np.minimum(top_k, vocab_size),
        top_p=top_p,
        min_p=min_p,
        free=np.flatnonzero(~greedy & ~filters),
        filtered=np.flatnonzero(~greedy & filters),
        penalised=_ints([i for i, p in enumerate(params) if p.has_penalties]),
        repetition=_floats([p.repetition_penalty for p in params]),
        frequency=_floats([p.frequency_penalty for p in params]),
        presence=_floats([p.presence_penalty for p in params]),
        bias_rows=_ints([x for x, _, _ in bias]),
        bias_ids=_ints([x for _, x, _ in bias]),
        bias_values=_floats([x for _, _, x in bias]),
        ban_rows=_ints([x for x, _ in bans]),
        ban_ids=_ints([x for _, x in bans]),
        masked=_ints(masked),
        words=_words([by_slot[slots[i]] for i in masked]),
    )


def _number(state: SamplerSlot) -> float:
    """What the next draw is made by."""
    params = state.params
    if params.is_greedy:
        return 0.0
    return uniform(params.seed or 0, state.num_output)


def _banned(state: SamplerSlot) -> tuple[int, ...]:
    """Ids that would end the request too early."""
    params = state.params
    return params.stop_token_ids if state.num_output < params.min_new_tokens else ()


def _words(masks: Sequence[TokenMask]) -> Int64:
    """Bits in words of 64, rows filled up with zeros."""
    longest = max((len(mask.words) for mask in masks), default=0)
    words = np.zeros((len(masks), longest + longest % 2), dtype="<i4")
    for row, mask in zip(words, masks, strict=True):
        row[: len(mask.words)] = np.array(mask.words, dtype="<i4")
    return words.view(np.int64)


def _ints(values: Sequence[int]) -> Int64:
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[float]) -> Float64:
    return np.array(values, dtype=np.float64)
