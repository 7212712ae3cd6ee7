"""Numbers that draws are made by, and the rule by which a draft is accepted. Pure.

Lossless rejection (Leviathan et al. 2023): a draft drawn from q stays with probability min(1, p/q);
otherwise the token is drawn from what p has more than q. Then each token comes as often as by p
alone, whatever q is. That holds as well where no row was run for the draft: accepted or not, the
token is known, and it is the last of its step. So it does not matter why drafts were cut, though a
grammar cuts them by what they are.

Each output index has three numbers, of independent streams: for the token itself, for the draft,
and for whether the draft stays. A draft that is made again in a later step, since one before it was
rejected, gets the same number: no output depends on the first.
"""

from __future__ import annotations

import torch
from torch import Tensor

TOKEN_STREAM, DRAFT_STREAM, ACCEPT_STREAM = range(3)
MASK64 = (1 << 64) - 1


def uniform(seed: int, index: int, stream: int = TOKEN_STREAM) -> float:
    """A number in [0, 1) from a seed and an output index: splitmix64 (Steele et al. 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xD1342543DE82EF95) & MASK64
    z = (z + stream * 0xA0761D6478BD642F) & MASK64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ (z >> shift)) * factor) & MASK64
    return float((z ^ (z >> 31)) >> 11) * 2.0**-53


def pick(probs: Tensor, u: float) -> int:
    """Inverse of the cumulative distribution of unnormalised `probs` at `u` in [0, 1)."""
    cumulative = probs.cumsum(0)
    index = int(torch.searchsorted(cumulative, u * float(cumulative[-1]), right=True))
    return min(index, len(probs) - 1)


def accept_or_draw(wanted: Tensor, guessed: Tensor, draft: int, seed: int, index: int) -> int:
    """The token of output `index`: `draft`, which was drawn from `guessed`, or another. Shapes: p
    `wanted` and q `guessed` float64 [V], each summing to 1."""
    if uniform(seed, index, ACCEPT_STREAM) * float(guessed[draft]) < float(wanted[draft]):
        return draft
    rest = (wanted - guessed).clamp_(min=0.0)
    if not float(rest.sum()) > 0.0:  # equal but for rounding
        rest = wanted
    return pick(rest, uniform(seed, index))
