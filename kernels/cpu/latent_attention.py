"""Attention over latents in C++ for float32; anything else runs `reference/latent_attention.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import latent_attention as reference
from .lib import ADDRESS, FLOAT, INT, function

LANES = 16  # sizes of latents are multiples of it

_latent_attention = function(
    "treadle_latent_attention",
    (ADDRESS, INT, INT, INT, ADDRESS, INT, ADDRESS, ADDRESS, INT, ADDRESS, INT)
    + (ADDRESS, FLOAT, ADDRESS, INT),
)


def latent_attention(
    q: Tensor, window: Tensor, window_mask: Tensor, entries: Tensor, chosen: Tensor, sink: Tensor
) -> Tensor:
    """See `reference.latent_attention.latent_attention`. Raises `ValueError` when sizes disagree,
    `IndexError` for an entry that does not exist."""
    rows, heads, size = q.shape
    wide = (q, window, entries, sink)
    if size % LANES or any(x.dtype is not torch.float32 for x in wide):
        return reference.latent_attention(q, window, window_mask, entries, chosen, sink)
    if (
        window.shape[1] != size
        or entries.shape[1] != size
        or window_mask.shape != (rows, len(window))
        or len(chosen) != rows
        or sink.shape != (heads,)
    ):
        raise ValueError(f"latent_attention of q {tuple(q.shape)}, window {tuple(window.shape)}")
    q, window, entries, sink = (x.contiguous() for x in wide)
    mask, chosen = window_mask.contiguous(), chosen.contiguous()
    out = torch.empty(rows, heads, size)
    failed = _latent_attention(
        q.data_ptr(),
        rows,
        heads,
        size,
        window.data_ptr(),
        len(window),
        mask.data_ptr(),
        entries.data_ptr(),
        len(entries),
        chosen.data_ptr(),
        chosen.shape[1],
        sink.data_ptr(),
        float(size) ** -0.5,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    if failed:
        raise IndexError(f"chosen entries must lie below {len(entries)}")
    return out
