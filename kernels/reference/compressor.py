"""Pooling of positions into compressed entries. Specification.

With ratio 2, entry j pools positions 2j and 2j+1, channel by channel, with a softmax of their two
gates. Source: deepseek-v41.md 3.4.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pool_pairs(even: Tensor, even_gate: Tensor, odd: Tensor, odd_gate: Tensor) -> Tensor:
    """Shapes: all `[E, D]`, values and gates of the first and the second position of each pair;
    returns `[E, D]`."""
    return even * torch.sigmoid(even_gate - odd_gate) + odd * torch.sigmoid(odd_gate - even_gate)
