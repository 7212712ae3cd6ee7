"""Attention whose keys are its values: one latent per position, shared by all heads. Specification.

A row attends the union of its window and of the compressed entries chosen for it, in one softmax
with a learned sink per head: the sink takes part in the denominator and has no value. A token may
be in both parts; both count. Source: deepseek-v41.md 2.6.
"""

from __future__ import annotations

import torch
from torch import Tensor


def latent_attention(
    q: Tensor, window: Tensor, window_mask: Tensor, entries: Tensor, chosen: Tensor, sink: Tensor
) -> Tensor:
    """Shapes: q `[T, H, D]`; window `[K, D]`, window_mask bool `[T, K]` true where a row sees a
    key; entries `[E, D]`, chosen `[T, S]` int64 entry numbers, -1 unused; sink `[H]`. Returns
    `[T, H, D]`. Scores are scaled by D^-0.5.
    """
    scale = float(q.shape[2]) ** -0.5
    near = torch.einsum("thd,kd->thk", q, window) * scale
    near = near.masked_fill(~window_mask.unsqueeze(1), -torch.inf)
    picked = _picked(entries, chosen)
    far = torch.einsum("thd,tsd->ths", q, picked) * scale
    far = far.masked_fill((chosen < 0).unsqueeze(1), -torch.inf)
    scores = torch.cat((near, far), -1)
    largest = torch.maximum(scores.amax(-1, keepdim=True), sink.to(q.dtype)[None, :, None])
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True) + torch.exp(sink.to(q.dtype)[None, :, None] - largest)
    keys = window.shape[0]
    out = torch.einsum("thk,kd->thd", weights[..., :keys], window)
    # Divided once, after the sum: the published order, and the one that rounds the least.
    return (out + torch.einsum("ths,tsd->thd", weights[..., keys:], picked)) / total


def _picked(entries: Tensor, chosen: Tensor) -> Tensor:
    """`[T, S, D]` values of the chosen entries; zeros in unused places, since the entry that such a
    place would point at may never have been written."""
    if not len(entries):
        return entries.new_zeros(*chosen.shape, entries.shape[1])
    return entries[chosen.clamp(min=0)].masked_fill((chosen < 0).unsqueeze(2), 0.0)
